"""Handlers that wait for a long time: others do not wait for them, and only they are done again after a crash."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.faults.conftest import NewEmbeddedWorld, NewWorld
from tests.faults.support import oracle
from tests.faults.support.apps import Entry, Posting
from tests.faults.support.feed import START, entries
from tests.faults.support.world import World

LONG = 30.0
"""Seconds that slow handlers wait: longer than any run here."""


def slow(*ids: int, key: str = "slow", wait: float = LONG) -> list[Entry]:
    return [Entry(id=number, key=key, amount=1, at=START, wait=wait) for number in ids]


def until_committed(world: World, count: int, *, begun: tuple[int, ...] = ()) -> None:
    """Let a worker live until this many results are committed and it has begun these entries, then kill it."""
    before = len(world.notes)
    life = world.live(until_end=False)
    life.wait_until(lambda: set(map(int, world.notes[before:])) >= {*begun}, what=f"did not begin {begun}")
    life.wait_until(lambda: world.observed("postings") >= count, what=f"did not commit {count} results")
    life.kill()


def test_only_the_suspended_handler_is_repeated_after_a_kill(new_world: NewWorld, seed: int) -> None:
    world = new_world("ledger", TIDEGATE_TEST_TOIL="0.0002")
    others = list(entries(seed, 300))
    world.append("entries", [*slow(1001, 1002), *slow(1003, key="slower"), *others[:150], *slow(1004), *others[150:]])
    for _ in range(3):
        until_committed(world, len(others), begun=(1001, 1003))
    picture = world.look()
    done = {posting.id for posting in picture.values("postings", Posting)}
    oracle.check_equal(world, "what is committed while some wait", done, {entry.id for entry in others})

    world.drain(TIDEGATE_TEST_HURRY="1")
    handled = Counter(map(int, world.notes))
    oracle.check_equal(world, "how often the others were handled", {handled[entry.id] for entry in others}, {1})
    oracle.check_equal(world, "how often the slow ones were begun", (handled[1001], handled[1003]), (4, 4))
    oracle.check_equal(world, "how often those behind them were", (handled[1002], handled[1004]), (1, 1))
    oracle.check_ledger(world, world.look())


def test_new_records_wait_for_unfinished_records_of_their_key_after_a_crash(new_world: NewWorld, seed: int) -> None:
    """The order of a key holds across workers: its unfinished records first, then later records."""
    world = new_world("ledger")
    others = list(entries(seed, 200))
    world.append("entries", [*slow(1001), *others])
    until_committed(world, len(others), begun=(1001,))
    world.append("entries", [*slow(1002, wait=0.0), *entries(seed + 1, 100, first=201)])
    until_committed(world, len(others) + 100)
    world.append("entries", slow(1003, wait=0.0))
    world.drain(TIDEGATE_TEST_HURRY="1")
    oracle.check_ledger(world, world.look())


def test_handlers_in_threads_are_repeated_after_each_crash(new_embedded_world: NewEmbeddedWorld, seed: int) -> None:
    world = new_embedded_world("threaded")
    others = [structs.replace(entry, wait=0.002) for entry in entries(seed, 300)]
    world.append("entries", [*slow(1001), *others[:150], *slow(1002), *others[150:]])
    for count in (30, 90, 200):
        until_committed(world, count, begun=(1001,))
    world.drain(TIDEGATE_TEST_HURRY="1")
    handled = Counter(map(int, world.notes))
    oracle.check_equal(world, "how often the slow ones were begun", (handled[1001], handled[1002]), (4, 1))
    oracle.check_ledger(world, world.look())


def test_a_slow_key_does_not_block_other_keys(new_world: NewWorld, seed: int) -> None:
    world = new_world("ledger", TIDEGATE_BUFFER_RECORDS="8000")
    hot = slow(*range(10_001, 10_301), key="k0", wait=0.02)  # 6 s of waiting, one after the other
    others = [entry for entry in entries(seed, 3000, keys=40) if entry.key != "k0"]
    world.append("entries", [*hot, *others])
    life = world.live(until_end=False)
    life.wait_until(lambda: world.observed("postings") >= len(others), what="held the others back")
    life.kill()
    done = {posting.id for posting in world.look().values("postings", Posting)}
    waiting = [entry for entry in hot if entry.id not in done]
    assert len(waiting) > len(hot) // 3, world.with_seed("the slow key was not slow: the test shows nothing")
    world.drain(TIDEGATE_TEST_HURRY="1")
    oracle.check_ledger(world, world.look())


linux = pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process holds is read from /proc")


@linux
@pytest.mark.parametrize("load", ["a hot key", "many keys"])
def test_memory_stays_bounded_when_handlers_cannot_keep_up(
    new_embedded_world: NewEmbeddedWorld, seed: int, load: str
) -> None:
    """100 MB of input lie before a service that handles a few records a second: it reads ahead only so far."""
    world = new_embedded_world("ledger", TIDEGATE_BUFFER_RECORDS="1000")
    world.append("entries", entries(seed, 100))
    idle = rss_while(world, lambda: world.observed("postings") >= 100, 0.5)
    big = [
        Entry(id=number, key="hot" if load == "a hot key" else f"k{number % 5000}", amount=1, at=START, wait=0.2,
              owner="x" * 2000)
        for number in range(1001, 51_001)
    ]  # fmt: skip
    world.append("entries", big, batch=1000)
    loaded = rss_while(world, lambda: world.observed("postings") > 105, 2.5)
    growth = (loaded - idle) >> 20
    assert growth < 60, world.with_seed(f"memory grew by {growth} MiB, from {idle >> 20}, with {load}")


@linux
def test_memory_stays_bounded_when_a_producer_outpaces_the_handlers(
    new_embedded_world: NewEmbeddedWorld, seed: int
) -> None:
    """The producer is beside the services, in the same process: what it sends waits in the log, not in memory."""
    world = new_embedded_world("ledger", TIDEGATE_BUFFER_RECORDS="1000")
    world.append("entries", entries(seed, 100))
    idle = rss_while(world, lambda: world.observed("postings") >= 100, 0.5)
    loaded = rss_while(world, lambda: len(world.acknowledged) > 100, 3, feed="tests.faults.support.feed:send_fast")
    growth, sent = (loaded - idle) >> 20, sum(map(int, world.acknowledged)) >> 20
    assert sent > 100, world.with_seed(f"only {sent} MiB were sent: the test shows nothing")
    assert growth < 120, world.with_seed(f"memory grew by {growth} MiB, from {idle >> 20}, while {sent} MiB were sent")


def rss_while(world: World, reached: Callable[[], bool], seconds: float, **options: Any) -> int:
    """The most memory that a worker holds until it came so far, and for some time after that."""
    life = world.live(until_end=False, **options)
    life.wait_until(reached)
    deadline, most = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        most = max(most, life.rss)
        time.sleep(0.02)
    life.kill()
    return most

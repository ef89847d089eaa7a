"""Services behind services, through kills: what one commits, the next handles once, and in its time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from examples.tinder_match.events import DAY, Like, Match
from examples.tinder_match.generator import LikeStream, Origin
from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.points import TRIMMING
from tests.faults.support.world import KILLED, Picture, World

CHECKS: dict[str, Callable[[World, Picture], None]] = {
    "shuffled": oracle.check_shuffled,
    "combined": oracle.check_combined,
    "chained": oracle.check_chained,
    "cycle": oracle.check_cycle,
}


@pytest.mark.parametrize("round_", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))])
@pytest.mark.parametrize("app", CHECKS)
def test_kills_do_not_affect_chained_or_cyclic_services(new_world: NewWorld, seed: int, app: str, round_: int) -> None:
    dice = random.Random(seed + round_)
    world = new_world(app)
    world.append("entries", entries(seed + round_, 400, in_order=True))

    for _ in range(10):
        faults = (f"{point}:kill@{dice.randint(1, 60)}" for point in world.points)
        life = world.live(",".join(faults))
        assert life.wait() in (0, KILLED), world.with_seed(life.output)
    assert world.struck.total() >= 2, world.with_seed("too few kills")
    world.drain()

    CHECKS[app](world, world.look())


def test_a_kill_during_a_trim_deletes_no_unread_records(new_world: NewWorld, seed: int) -> None:
    """At the end of a bounded run, or at the start of the next one, with unread and new records."""
    world = new_world("shuffled")
    for number in range(4):
        world.append("entries", entries(seed + number, 100, in_order=True, first=1 + 100 * number))
        world.suffer(f"{TRIMMING}:kill@1")
    world.drain()

    picture = world.look()
    left = picture.partitions("shuffled.owners.entries.by-key")
    assert not any(left), world.with_seed("what all have read is not deleted at the end")
    oracle.check_shuffled(world, picture)


def test_an_upstream_watermark_does_not_overtake_a_lagging_service(new_world: NewWorld, seed: int) -> None:
    """After a crash the first service knows its time at once, but what it sent before is not yet handled."""
    world = new_world("chained", TIDEGATE_TEST_TOIL="0.002")
    world.append("entries", entries(seed, 300, in_order=True))

    for visit in (400, 40, 40):  # the first service is through after 300
        world.suffer(f"handler.after:kill@{visit}")
    world.drain()

    oracle.check_chained(world, world.look())


@pytest.mark.parametrize("round_", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 4))])
def test_kills_do_not_affect_the_tinder_services(new_world: NewWorld, seed: int, round_: int) -> None:
    """Two chained services with timers, killed at each point in turn. Only the last worker reaches the end of time."""
    dice = random.Random(seed + round_)
    world = new_world("examples.tinder_match:app")
    stream = LikeStream(seed + round_, Origin())
    world.append("likes", likes_of_days(stream, 30))

    for point in sorted({*world.points} - {"log.cleaning", "log.cleaned"}):
        life = world.live(f"{point}:kill@{dice.randint(1, 8)}", until_end=False)
        deadline = time.monotonic() + 10
        while not life.over and "recovered" not in life.output and time.monotonic() < deadline:
            time.sleep(0.005)  # how soon it begins depends on the machine
        deadline = time.monotonic() + 0.4
        while not life.over and time.monotonic() < deadline:
            time.sleep(0.005)
        life.kill()
        assert life.status == KILLED, world.with_seed(life.output)
        world.append("likes", likes_of_days(stream, 3))
    assert world.struck.total() >= 5, world.with_seed("too few kills")
    world.drain()

    picture = world.look()
    oracle.check_tinder(world, picture)
    assert picture.values("matches", Match), world.with_seed("there was no match: the test shows nothing")


def likes_of_days(stream: LikeStream, days: int) -> list[Like]:
    return [like for _ in range(days * 8) for like in stream.next(6, DAY // 8)]

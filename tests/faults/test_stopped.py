"""Workers that get signals: a suspended one continues without effect on results, a stopped one ends in order."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter

import pytest

from tests.faults.conftest import NewEmbeddedWorld, NewWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.processes import WorkerProcess
from tests.faults.support.world import KILLED, World

linux = pytest.mark.skipif(sys.platform != "linux", reason="whether a process is stopped is read from /proc")


@linux
@pytest.mark.parametrize("point", ["handler.after", "commit.appending", "log.written", "commit.appended"])
def test_a_suspended_worker_resumes_at_its_position(
    new_embedded_world: NewEmbeddedWorld, seed: int, point: str
) -> None:
    world = new_embedded_world("alarms")
    world.append("entries", entries(seed, 300, waiting=0.2))
    life = world.live(f"{point}:stop@5")
    life.wait_until(lambda: life.stopped, what="did not stop")
    time.sleep(0.3)
    life.signal(signal.SIGCONT)
    assert life.wait() == 0, world.with_seed(life.output)
    assert world.struck[f"{point}:stop"] == 1
    oracle.check_alarms(world, world.look())


@linux
def test_the_log_of_a_suspended_worker_stays_locked(new_embedded_world: NewEmbeddedWorld, seed: int) -> None:
    world = new_embedded_world("ledger")
    world.append("entries", entries(seed, 300))
    life = world.live("commit.appended:stop@4")
    life.wait_until(lambda: life.stopped, what="did not stop")
    world.fail(error=f"held by process {life.pid}")
    life.signal(signal.SIGCONT)
    assert life.wait() == 0, world.with_seed(life.output)
    oracle.check_ledger(world, world.look())


def at_work(world: World) -> WorkerProcess:
    """A worker that has begun to handle records."""
    begun = len(world.notes)
    life = world.live(until_end=False)
    life.wait_until(lambda: len(world.notes) > begun, what="did not begin")
    return life


def test_a_graceful_shutdown_finishes_handlers_and_repeats_none(new_world: NewWorld, seed: int) -> None:
    dice = random.Random(seed)
    world = new_world("ledger", TIDEGATE_TEST_TOIL="0.0005")
    sent = list(entries(seed, 2000, waiting=0.3))
    world.append("entries", sent)
    for _ in range(4):
        life = at_work(world)
        time.sleep(dice.random() * 0.05)
        life.signal(signal.SIGTERM)
        assert life.wait() == 0, world.with_seed(life.output)
    world.drain()
    assert set(Counter(world.notes).values()) == {1}, world.with_seed("a handler was run again after an orderly stop")
    oracle.check_ledger(world, world.look())


def test_a_kill_during_a_graceful_shutdown_loses_and_duplicates_nothing(new_world: NewWorld, seed: int) -> None:
    dice = random.Random(seed)
    world = new_world("ledger", TIDEGATE_TEST_TOIL="0.0005")
    world.append("entries", entries(seed, 2000, waiting=0.3, longest=0.1))
    for _ in range(5):
        life = at_work(world)
        life.signal(signal.SIGTERM)
        time.sleep(dice.random() * 0.06)
        life.kill()
        assert life.status in (0, KILLED), world.with_seed(life.output)
    world.drain()
    oracle.check_ledger(world, world.look())

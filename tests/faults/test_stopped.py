"""SIGSTOP and SIGCONT: a worker that slept still owns its log, and goes on as if nothing had been."""

from __future__ import annotations

import signal
import time

import pytest

from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries


@pytest.mark.parametrize("point", ["handler.after", "commit.appending", "log.written", "commit.appended"])
def test_a_worker_that_was_stopped_goes_on_where_it_stood(new_world: NewWorld, seed: int, point: str) -> None:
    world = new_world("alarms")
    world.append("entries", entries(seed, 300, waiting=0.2))
    life = world.live(f"{point}:stop@5")
    life.wait_until(lambda: life.stopped, what="did not stop")
    time.sleep(0.3)
    life.signal(signal.SIGCONT)
    assert life.wait() == 0, world.told(life.output)
    assert world.struck[f"{point}:stop"] == 1
    oracle.check_alarms(world, world.look())


def test_nobody_takes_the_log_of_a_worker_that_sleeps(new_world: NewWorld, seed: int) -> None:
    world = new_world("ledger")
    world.append("entries", entries(seed, 300))
    life = world.live("commit.appended:stop@4")
    life.wait_until(lambda: life.stopped, what="did not stop")
    world.fail(saying=f"held by process {life.pid}")
    life.signal(signal.SIGCONT)
    assert life.wait() == 0, world.told(life.output)
    oracle.check_ledger(world, world.look())

"""An error in the engine itself, at every named point: the worker stops and says so, and a restart is right."""

from __future__ import annotations

import random

import pytest

from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.points import ON_EMBEDDED

EARLY = {"input.read", "task.opening", "recovery.started", "recovery.replaying", "recovery.marker", "store.flush"}
ELSEWHERE = {"timer.fired", "task.reopening", "task.closing"}
"""Points that an ordinary run does not reach, or only at its end."""


@pytest.mark.parametrize("point", sorted({*ON_EMBEDDED} - ELSEWHERE))
def test_after_an_error_at_any_point_a_restarted_worker_is_exact(
    new_embedded_world: NewEmbeddedWorld, seed: int, point: str
) -> None:
    dice = random.Random(seed)
    world = new_embedded_world("ledger", TIDEGATE_TEST_TOIL="0.0003")
    if point.startswith("log.clean"):
        world.log_options = {"clean_records": 50, "maintenance_interval": 0.01, "block_records": 20, "clean_keys": 40}
    world.append("entries", entries(seed, 400, waiting=0.1))
    world.suffer("commit.applied:kill@6", environment={"TIDEGATE_FLUSH_SECONDS": "1000"})

    visit = dice.randint(1, 2 if point in EARLY else 5)
    world.fail(f"{point}:raise@{visit}", error=point, until_end=False)
    assert world.struck[f"{point}:raise"] == 1, world.with_seed("the fault did not strike once")
    world.drain()
    oracle.check_ledger(world, world.look())


def test_an_error_after_a_timer_has_fired_does_not_fire_it_again(
    new_embedded_world: NewEmbeddedWorld, seed: int
) -> None:
    world = new_embedded_world("sessions")
    world.append("entries", entries(seed, 300))
    for visit in (1, 3, 2):
        world.fail(f"timer.fired:raise@{visit}", error="InjectedFault")
    world.drain()
    oracle.check_sessions(world, world.look())


def test_a_log_failure_stops_an_idle_worker(new_embedded_world: NewEmbeddedWorld, seed: int) -> None:
    """Nothing is there to be committed, so no commit would find out: it must not sit there as if all were well."""
    world = new_embedded_world("ledger")
    world.log_options = {"clean_records": 50, "maintenance_interval": 0.7, "block_records": 20}
    world.append("entries", entries(seed, 200))
    world.fail("log.cleaning:raise@1", error="log.cleaning", until_end=False)
    world.drain()
    oracle.check_ledger(world, world.look())

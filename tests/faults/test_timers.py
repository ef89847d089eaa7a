"""Timers through crashes: each fires once, whatever was under way."""

from __future__ import annotations

import random

import pytest

from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries


@pytest.mark.parametrize("waiting", [0.0, 0.3], ids=["direct", "waiting"])
def test_a_kill_between_a_timers_firing_and_its_commit_fires_it_once(
    new_world: NewWorld, seed: int, waiting: float
) -> None:
    dice = random.Random(seed)
    world = new_world("alarms", TIDEGATE_TEST_TOIL="0.0002")
    world.append("entries", entries(seed, 300, waiting=waiting))
    for _ in range(6):
        world.suffer(f"timer.fired:kill@{dice.randint(1, 25)}")
    world.drain()
    oracle.check_alarms(world, world.look())


def test_timers_that_move_fire_at_the_same_point_of_the_stream_as_without_crashes(
    new_world: NewWorld, seed: int
) -> None:
    """When the watermark passes them is decided by the records of the partition alone."""
    dice = random.Random(seed)
    world = new_world("sessions", TIDEGATE_TEST_TOIL="0.0003")
    world.append("entries", entries(seed, 500))
    for point in ("timer.fired", "commit.applied", "timer.fired", "commit.appended", "handler.after"):
        world.suffer(f"{point}:kill@{dice.randint(1, 6)}", until_end=False)
    world.drain()
    oracle.check_sessions(world, world.look())

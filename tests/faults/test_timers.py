"""Timers through crashes: each fires once, whatever was under way."""

from __future__ import annotations

import random

import pytest

from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.apps import LEAD, Entry
from tests.faults.support.feed import START, entries


@pytest.mark.parametrize("waiting", [0.0, 0.3], ids=["direct", "waiting"])
def test_a_timer_fires_once_despite_a_kill_before_its_commit(new_world: NewWorld, seed: int, waiting: float) -> None:
    dice = random.Random(seed)
    world = new_world("alarms", TIDEGATE_TEST_TOIL="0.0002")
    world.append("entries", entries(seed, 300, waiting=waiting))
    for _ in range(6):
        world.suffer(f"timer.fired:kill@{dice.randint(1, 25)}")
    world.drain()
    oracle.check_alarms(world, world.look())


def test_rescheduled_timers_fire_at_the_same_stream_position_despite_crashes(new_world: NewWorld, seed: int) -> None:
    """When the watermark passes them is decided by the records of the partition alone."""
    dice = random.Random(seed)
    world = new_world("sessions", TIDEGATE_TEST_TOIL="0.0003")
    world.append("entries", entries(seed, 500))
    for point in ("timer.fired", "commit.applied", "timer.fired", "commit.appended", "handler.after"):
        world.suffer(f"{point}:kill@{dice.randint(1, 6)}", until_end=False)
    world.drain()
    oracle.check_sessions(world, world.look())


def test_a_watermark_held_back_by_a_handler_is_still_held_back_after_a_restart(new_world: NewWorld) -> None:
    """A watermark counts when all earlier records are finished. After a crash the channels know theirs at once, but the
    unfinished record is handled first; when it is finished, the watermark advances without another record."""
    world = new_world("alarms")
    start, later = START, START + 20 * LEAD
    world.append("entries", [Entry(id=1_001, key="slow", amount=0, at=start, wait=30.0)])
    world.append("entries", [Entry(id=2 * n, key=f"k{n}", amount=0, at=start + n) for n in range(1, 30)])
    world.append("entries", [Entry(id=1_002 + 2 * n, key=f"k{n}", amount=0, at=later) for n in range(30)])
    due = {f"fired {2 * n}" for n in range(1, 30)}
    place = world.place_of("entries", "slow")
    held = {f"fired {2 * n}" for n in range(1, 30) if world.place_of("entries", f"k{n}") == place}
    assert held

    for _ in range(2):
        life = world.live(until_end=False)
        life.wait_until(lambda: due - held <= set(world.notes), what="did not fire the timers of the other partition")
        life.kill()
        assert not held & set(world.notes), world.with_seed("time has passed an unfinished record")
    life = world.live(until_end=False, environment={"TIDEGATE_TEST_HURRY": "1"})
    life.wait_until(lambda: due <= set(world.notes), what="did not let time go on")
    life.kill()
    before = world.notes[: min(world.notes.index(firing) for firing in held)]
    assert "handled 1001" in before, world.with_seed("a timer fired before the record that held time back was handled")
    world.drain(TIDEGATE_TEST_HURRY="1")
    oracle.check_alarms(world, world.look())

"""Clocks that jump and partitions that become idle: watermarks advance, and every timer fires once."""

from __future__ import annotations

import random
import time

import pytest

from tests.faults.conftest import NewKafkaWorld, NewWorld
from tests.faults.support import oracle
from tests.faults.support.apps import LEAD, Entry
from tests.faults.support.feed import START, entries
from tests.faults.support.kafka import KafkaWorld

HOUR = 3600.0
COUNT = 300


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "backward"])
def test_a_clock_that_jumps_by_an_hour_fires_each_timer_once(new_world: NewWorld, seed: int, hours: int) -> None:
    """While a worker runs, and between two workers. Event time is not affected."""
    dice = random.Random(seed)
    world = new_world("alarms", TIDEGATE_TEST_TOIL="0.003")
    if isinstance(world, KafkaWorld):  # brokers take nothing that is stamped more than an hour ahead of their clocks
        world.configure("rung", message_timestamp_after_max_ms=str(1 << 62))
    world.append("entries", entries(seed, COUNT, waiting=0.1))
    world.jumps = [(dice.uniform(0.3, 0.8), hours * HOUR), (0.9, 0.0), (1.1, 2 * hours * HOUR)]
    for jumps in (1, 2, 3):
        before = world.struck["clock:jump"]
        life = world.live(until_end=False)
        reached = before + jumps
        life.wait_until(lambda at=reached: world.struck["clock:jump"] >= at, what="kept its clock")
        time.sleep(dice.random() * 0.1)
        life.kill()
    # What was set while the clock was ahead is due only when it is that time again.
    world.jumps = [(0.0, 3 * HOUR)] if hours > 0 else []
    world.drain()
    oracle.check_alarms(world, world.look())


def test_idle_partitions_do_not_hold_back_the_watermark(new_kafka_world: NewKafkaWorld, seed: int) -> None:
    """One of eight partitions has records. The downstream service waits for the watermarks of all eight: idle
    partitions are excluded after a timeout, also by a worker that takes over."""
    world = new_kafka_world("idling", partitions=8)
    world.append("entries", [Entry(id=n, key="k", amount=1, at=START + n, owner=f"o{n}") for n in range(COUNT)])
    first = world.join()
    world.until(lambda: world.observed("postings") == COUNT, "nothing is handled")
    first.kill()
    world.append("entries", [Entry(id=COUNT, key="k", amount=1, at=START + 10 * LEAD, owner="o")])
    second = world.join()
    due = {f"fired {number}" for number in range(COUNT)}
    world.until(lambda: due <= {*world.notes}, "time does not go on")
    second.kill()
    world.drain()
    oracle.check_chained(world, world.look())

"""An error in the engine itself, at every named point of a worker on a broker: it stops and says so, and what it had
under way is decided by its successor."""

from __future__ import annotations

import random

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.points import ON_KAFKA

EARLY = {"input.read", "task.opening", "recovery.started", "recovery.replaying", "recovery.marker", "store.flush"}
ELSEWHERE = {"timer.fired", "task.reopening", "task.closing", "group.rebalancing", "group.assigned"}
"""Points that an ordinary run does not reach, or only at its end, and points where aiokafka swallows errors."""


@pytest.mark.slow
@pytest.mark.parametrize("point", sorted({*ON_KAFKA} - ELSEWHERE))
def test_after_an_error_at_any_point_a_restarted_worker_is_exact(
    new_kafka_world: NewKafkaWorld, seed: int, point: str
) -> None:
    dice = random.Random(seed)
    world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.0003")
    world.append("entries", entries(seed, 400, waiting=0.1))
    world.suffer("commit.applied:kill@6", environment={"TIDEGATE_FLUSH_SECONDS": "1000"})

    world.fail(f"{point}:raise@{dice.randint(1, 2 if point in EARLY else 5)}", error=point, until_end=False)
    assert world.struck[f"{point}:raise"] == 1, world.with_seed("the fault did not strike once")
    world.drain()
    oracle.check_ledger(world, world.look())

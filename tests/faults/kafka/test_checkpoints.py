"""Checkpoints on a broker: several workers, of which one dies while a checkpoint is under way, the leader perhaps."""

from __future__ import annotations

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.kafka.test_rebalances import end, has_tasks
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.kafka import KafkaWorld
from tests.faults.support.world import KILLED
from tests.faults.test_checkpoints import complete, lose_stores, storage_of

OFTEN = {"TIDEGATE_CHECKPOINT_INTERVAL": "0.3"}
PARTITIONS, COUNT = 2, 300


def newest(world: KafkaWorld) -> int:
    return max(storage_of(world).checkpoints(), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["snapshot.uploading", "snapshot.reporting", "leader.begun", "leader.copied"])
def test_a_worker_killed_during_a_checkpoint_and_the_following_rebalance(
    new_kafka_world: NewKafkaWorld, seed: int, point: str
) -> None:
    """That checkpoint is aborted, or was complete; the next one succeeds, with the remaining workers."""
    world = new_kafka_world("chained", partitions=PARTITIONS, **OFTEN)
    world.append("entries", entries(seed, COUNT, in_order=True))
    victim = world.join(f"{point}:kill@6")
    world.until(lambda: has_tasks(victim), "the first one has no tasks")
    survivor = world.join()
    world.until(lambda: victim.over, "the fault does not strike", 90)
    assert victim.wait() == KILLED
    world.until(lambda: has_tasks(survivor), "nobody takes over", 90)
    before = newest(world)
    world.until(lambda: newest(world) > before + 1, "no more checkpoints", 90)
    assert world.struck.total() == 1
    end(world, survivor)
    assert complete(world)
    lose_stores(world)
    world.drain(TIDEGATE_CHECKPOINT_INTERVAL="0")
    oracle.check_chained(world, world.look())

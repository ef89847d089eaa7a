"""Topics that are not what they were: compacted, or with more partitions than the app knows."""

from __future__ import annotations

import random

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.apps import PARTITIONS
from tests.faults.support.feed import entries

CHANGELOG = "ledger.ledger.changelog"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_changelog_compacted_by_the_broker_restores_all_state(new_kafka_world: NewKafkaWorld, seed: int) -> None:
    """With transactions in it that were aborted, whose records must not come back."""
    dice = random.Random(seed)
    world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.0003")
    world.configure(
        CHANGELOG,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.0001",
        delete_retention_ms="0",
    )
    for round_ in range(5):
        world.append("entries", entries(seed + round_, 200, first=1 + 200 * round_))
        world.suffer(f"transaction.sent:kill@{dice.randint(2, 5)}")
    world.drain()
    before = sum(map(len, world.topics(CHANGELOG)))
    world.append("entries", entries(seed, 20, first=5_001))
    world.drain()  # what was written last is not touched, so there must be something behind it
    world.until(lambda: sum(map(len, world.topics(CHANGELOG))) < before // 2, "nothing was compacted", seconds=120)
    world.lose_stores()
    world.append("entries", entries(seed, 100, first=6_001))
    life = world.drain()
    assert "replayed 0 records" not in life.output, world.with_seed("nothing was restored: the test shows nothing")
    oracle.check_ledger(world, world.look())


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["entries", CHANGELOG])
def test_adding_partitions_under_a_running_app_stops_it_with_an_explanation(
    new_kafka_world: NewKafkaWorld, seed: int, topic: str
) -> None:
    """Keys would move away from their state. No handled record is lost, and every start is refused."""
    world = new_kafka_world("ledger")
    world.append("entries", entries(seed, 300))
    life = world.join()
    world.until(lambda: world.observed("postings") == 300, "nothing is handled")
    world.add_partitions(topic, PARTITIONS + 1)
    assert life.wait(90) == 1, world.with_seed(life.output)
    assert f"has {PARTITIONS + 1} partitions, but the app expects {PARTITIONS}" in life.output, world.with_seed(
        life.output
    )
    for _ in range(2):
        world.fail(error="Keys would move between tasks without their state")
    assert world.observed("postings") == 300

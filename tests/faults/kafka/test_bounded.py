"""Bounded runs on a broker end when all workers together have handled all input."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.apps import Entry
from tests.faults.support.feed import entries
from tests.faults.support.kafka import KafkaWorld
from tests.faults.support.processes import WorkerProcess
from tests.faults.support.world import KILLED
from tidegate.engine.topology.plan import Plan
from tidegate.logs.base import Log

PARTITIONS = 8


def test_a_bounded_run_completes_the_tasks_of_a_dead_worker(new_kafka_world: NewKafkaWorld, seed: int) -> None:
    """Half of the tasks are assigned to a worker that this kills, and the group has not noticed yet. It has handled
    entries and committed none."""
    world = new_kafka_world("alarms", partitions=PARTITIONS)
    victim = world.join("group.assigned:kill@2", TIDEGATE_COMMIT_INTERVAL="60")
    victim.wait_for("recovered")
    world.append("entries", entries(seed, 400, keys=60))
    world.drain()
    assert victim.wait() == KILLED, world.with_seed(victim.output)
    oracle.check_alarms(world, world.look())


def test_workers_of_a_bounded_run_exit_together_when_all_input_is_handled(
    new_kafka_world: NewKafkaWorld, seed: int
) -> None:
    """Two services in a circle: what one worker has done makes work for the other."""
    world = new_kafka_world("cycle", partitions=PARTITIONS)
    world.append("entries", entries(seed, 400, keys=60))
    lives = [world.live(name=""), world.live(name="")]
    for life in lives:
        assert life.wait() == 0, world.with_seed(life.output)
    oracle.check_cycle(world, world.look())


@pytest.mark.parametrize("decision", ["committed", "aborted"])
def test_a_bounded_run_waits_for_transactions_open_at_its_start(
    new_kafka_world: NewKafkaWorld, seed: int, decision: str
) -> None:
    """Also what a sender takes for committed may be shown to readers a moment later."""
    world = new_kafka_world("ledger")
    world.append("entries", entries(seed, 100))
    life = asyncio.run(_run_beside(world, list(entries(seed, 50, first=1_001)), decision))
    assert life.wait() == 0, world.with_seed(life.output)
    picture = world.look()
    seen = sum(len(records) for source, records in picture.topics.items() if source.topic == "entries")
    assert seen == (150 if decision == "committed" else 100)
    oracle.check_ledger(world, picture)


async def _run_beside(world: KafkaWorld, values: list[Entry], decision: str) -> WorkerProcess:
    """Resolve a transaction once a worker that found it open is otherwise idle."""
    topic = await asyncio.to_thread(world.with_log, lambda log, plan: _real_name(world, log, plan))
    address = world.broker.removeprefix("kafka://")
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"{world.prefix}sender")
    await producer.start()
    try:
        await producer.begin_transaction()
        for value in values:
            await producer.send(topic, msgspec.json.encode(value), key=value.key.encode())
        await producer.flush()
        life = world.live()
        await asyncio.to_thread(life.wait_for, "recovered")
        await asyncio.to_thread(world.until, lambda: world.observed("postings") >= 100, "it does nothing")
        await asyncio.sleep(1.5)
        assert not life.over, world.with_seed(f"it did not wait: {life.output}")
        await (producer.commit_transaction() if decision == "committed" else producer.abort_transaction())
    finally:
        await producer.stop()
    return life


async def _real_name(world: KafkaWorld, log: Log, plan: Plan) -> str:
    return world.real_name(plan, "entries")

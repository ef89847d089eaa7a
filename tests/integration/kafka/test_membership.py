"""A group of real members on a real broker: who gets what, and who still is one."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from tidegate.errors import LogError
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.kafka import KafkaLog
from tidegate.logs.kafka.connection.options import addresses_of
from tidegate.logs.kafka.membership import KafkaMembership
from tidegate.settings import Settings
from tidegate_app.kafka.plugin import SharedKafka

SESSION = 2.0
TASKS = 6


class Group:
    def __init__(self, url: str) -> None:
        self._url = url
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self.tasks = [
            TopicPartition(f"{self.name}.{service}.changelog", n) for service in "ab" for n in range(TASKS // 2)
        ]
        self._members: list[KafkaMembership] = []

    async def create(self) -> None:
        log = KafkaLog(self._url, Settings(broker=self._url))
        await log.start()
        topics = {task.topic for task in self.tasks}
        await log.create([TopicSpec(name=topic, partitions=TASKS // 2, compact=True) for topic in topics])
        await log.stop()

    def member(self, instance: str = "") -> KafkaMembership:
        number = len(self._members)
        settings = Settings(broker=self._url, kafka_session_timeout=SESSION, kafka_instance=instance)
        member = KafkaMembership(self.name, addresses_of(self._url), settings, address=f"http://worker-{number}")
        self._members.append(member)
        return member

    async def join(self, instance: str = "", held: tuple[TopicPartition, ...] = ()) -> KafkaMembership:
        member = self.member(instance)
        await member.join(self.tasks, lambda: held)
        return member

    async def close(self) -> None:
        for member in self._members:
            await member.leave()


@pytest.fixture
async def group(kafka: SharedKafka) -> AsyncIterator[Group]:
    group = Group(kafka.url)
    await group.create()
    try:
        yield group
    finally:
        await group.close()


async def eventually(true: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110  no event to wait for
            await asyncio.sleep(0.02)


def freeze(member: KafkaMembership) -> None:
    """As a process that is stopped: no heartbeat any more, and no goodbye."""
    assert member._polling is not None
    member._polling.cancel()
    member._consumer._coordinator._heartbeat_task.cancel()


async def test_tasks_are_assigned_although_the_leaders_client_does_not_know_the_topics(
    kafka: SharedKafka,
) -> None:
    """As when the response that lists them is late or lost: no rebalance would assign them."""
    group = Group(kafka.url)
    try:
        first = await asyncio.wait_for(group.join(), 20)
        assert first.owned == set(group.tasks)
        second = await asyncio.wait_for(group.join(), 20)
        await eventually(lambda: first.owned | second.owned == set(group.tasks) and len(first.owned) == TASKS // 2)
    finally:
        await group.close()


async def test_the_first_worker_gets_all_tasks_and_the_second_gets_half(group: Group) -> None:
    first = await group.join()
    assert first.owned == set(group.tasks)

    second = await group.join()
    await eventually(lambda: len(first.owned) == TASKS // 2)

    assert first.owned | second.owned == set(group.tasks)
    assert not first.owned & second.owned


async def test_a_leaving_worker_hands_its_tasks_over_at_once(group: Group) -> None:
    first, second = await group.join(), await group.join()
    await eventually(lambda: len(first.owned) == TASKS // 2)
    kept = first.owned
    began = time.monotonic()

    await second.leave()
    await eventually(lambda: first.owned == set(group.tasks))

    assert kept <= first.owned
    assert time.monotonic() - began < SESSION


async def test_a_worker_gets_the_tasks_whose_state_it_has(group: Group) -> None:
    first = await group.join()
    mine = tuple(group.tasks[: TASKS // 2])
    second = await group.join(held=mine)
    await eventually(lambda: len(first.owned) == TASKS // 2)

    # Tasks of other workers stay as far as balance allows; a task that must move goes where its state is.
    assert len(second.owned) == TASKS // 2
    await first.leave()
    third = await group.join(held=mine)
    await eventually(lambda: len(second.owned) == TASKS // 2)
    assert second.owned | third.owned == set(group.tasks)


async def test_a_member_is_confirmed_and_an_evicted_member_is_not(group: Group) -> None:
    first, second = await group.join(), await group.join()
    await eventually(lambda: len(first.owned) == TASKS // 2)
    assert await first.confirm()
    assert await second.confirm()

    freeze(second)
    await eventually(lambda: first.owned == set(group.tasks))

    assert await first.confirm()
    assert not await second.confirm()


async def test_members_know_the_addresses_and_tasks_of_the_others(group: Group) -> None:
    first, second = await group.join(), await group.join()
    await eventually(lambda: bool(first.owned) and bool(second.owned) and first.owned != frozenset(group.tasks))

    known = await first.workers()
    async with asyncio.timeout(20):
        while not all(worker.tasks for worker in known):
            await asyncio.sleep(0.05)
            known = await first.workers()

    assert {worker.address: worker.tasks for worker in known} == {
        "http://worker-0": first.owned,
        "http://worker-1": second.owned,
    }


async def test_a_member_without_heartbeat_responses_loses_its_session(group: Group) -> None:
    member = await group.join()
    await asyncio.sleep(1.5 * SESSION)  # longer than what the assignment itself is good for
    await eventually(lambda: member.session_valid)
    freeze(member)
    await eventually(lambda: not member.session_valid)


async def test_a_static_member_that_returns_in_time_gets_its_tasks_without_a_rebalance(group: Group) -> None:
    first, second = await group.join("one"), await group.join("two")
    await eventually(lambda: len(first.owned) == TASKS // 2)
    generation, tasks = first.generation, second.owned

    await second.leave()
    again = await group.join("two")

    assert again.owned == tasks
    assert first.generation == generation, "nobody was asked to join anew"


async def test_an_app_without_services_needs_no_group(kafka: SharedKafka) -> None:
    member = KafkaMembership("nothing", addresses_of(kafka.url), Settings(broker=kafka.url))
    await member.join([], list)

    assert member.owned == frozenset()
    await member.leave()


async def test_the_member_list_is_empty_while_a_member_joins(group: Group) -> None:
    member = group.member("one")
    joining = asyncio.ensure_future(member.join(group.tasks, list))
    answers = []
    while not joining.done():
        with suppress(LogError):  # a group that has no coordinator yet
            answers.append(await member.workers())
        await asyncio.sleep(0)

    assert answers[0] == []
    await joining
    assert [worker.name for worker in await member.workers()] == [member.name]

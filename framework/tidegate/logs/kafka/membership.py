"""A worker's place in its app's consumer group.

The group hands out tasks, named by their changelogs' partitions, through an assignor of our own. The consumer is there
for membership only: whatever is assigned is paused at once, and it is polled so that it stays a member. Its callbacks
note what changed and nothing else: aiokafka sends no heartbeat while one runs, and swallows what it raises.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest

from tidegate.errors import LogError
from tidegate.faults import fault_point
from tidegate.logs.assignment import Member, divide
from tidegate.logs.base import TopicPartition
from tidegate.logs.kafka.connection.broker_errors import RetryBudget
from tidegate.logs.kafka.connection.client import Client
from tidegate.logs.kafka.connection.options import client_options
from tidegate.logs.kafka.groups import Said, member_of
from tidegate.logs.membership import Held, process_name
from tidegate.logs.observer import Worker
from tidegate.settings import KafkaSettings

__all__ = ("KafkaMembership",)

logger = logging.getLogger(__name__)

_VERSION: Final = 0
_POLL_SECONDS: Final = 0.5
_UNIQUE: Final = 37
"""How much longer than its name a named member's identity is: a dash and a UUID."""
_REBALANCE_MS: Final = 60_000
"""How long the group waits for a member that does not come when it is called; a member that lives comes at once."""


class _Assignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """Divides tasks as `assignment` says. An instance, not a class: it speaks for one member."""

    name = "tidegate"

    def __init__(self, membership: KafkaMembership) -> None:
        self._membership = membership

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        said = msgspec.msgpack.encode(self._membership.said())
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), said)

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        said = {name: _said(metadata) for name, metadata in members.items()}
        known = {name: _member(metadata, said[name]) for name, metadata in members.items()}
        # Members say how many there are: what the client has heard of a topic may be nothing yet, and whoever is given
        # no tasks for that would have none until somebody else comes or goes.
        counts: Counter[str] = Counter()
        for one in said.values():
            counts |= Counter(one.partitions)
        tasks = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        return {name: _assignment(given) for name, given in divide(tasks, known).items()}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        pass


class KafkaMembership(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, group: str, addresses: Sequence[str], settings: KafkaSettings, *, address: str = "") -> None:
        """`address`: where this worker's API answers, for the other members."""
        self.group, self.address = group, address
        self.owned: frozenset[TopicPartition] = frozenset()
        self.generation = 0
        self._since = 0
        """The group's own count of generations: the same for all members, so that claims can be compared."""
        self._identity = ""
        """What the group calls this member."""
        self._replaced = False
        self._held: Held = tuple
        self._partitions: dict[str, int] = {}
        self.name = process_name()
        self._heard = float("-inf")
        """When the last heartbeat left that the group has answered."""
        self._addresses, self._settings = addresses, settings
        self._session_timeout = settings.kafka_session_timeout
        self._consumer: Any = None
        self._polling: asyncio.Task[None] | None = None
        self._assigned = asyncio.Condition()

    # -- the contract ------------------------------------------------------------------------------------------------
    async def join(self, tasks: Iterable[TopicPartition], held: Held) -> None:
        self._held, self._partitions = held, dict(Counter(task.topic for task in tasks))
        topics = sorted(self._partitions)
        if not topics:
            self.generation += 1
            return
        await self._connect()
        self._hear_heartbeats()
        self._consumer.subscribe(topics, listener=self)
        self._polling = asyncio.create_task(self._poll(), name=f"membership of {self.group}")
        await self.changed(0)

    async def changed(self, generation: int) -> None:
        async with self._assigned:
            await self._assigned.wait_for(lambda: self.generation > generation or self._failed)
        if self._failed and self._polling is not None:
            self._polling.result()

    async def confirm(self) -> bool:
        """By committing offsets that nobody uses: the group takes them from members of the present generation only."""
        generation = self.generation
        assigned = self._consumer.assignment() if self._consumer is not None else ()
        if not assigned:
            return False
        try:
            async with asyncio.timeout(self._session_timeout):
                await self._consumer.commit(dict.fromkeys(assigned, 0))
        except (CommitFailedError, KafkaError, TimeoutError):
            return False
        return self.generation == generation

    async def leave(self) -> None:
        polling, self._polling = self._polling, None
        consumer, self._consumer = self._consumer, None
        self.owned = frozenset()
        if polling is not None:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        if consumer is not None:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(self._session_timeout):
                    await consumer.stop()

    @property
    def fresh(self) -> bool:
        """Counted from when the heartbeat left: the session that it prolongs began later."""
        return time.monotonic() - self._heard < self._session_timeout

    async def workers(self) -> list[Worker]:
        """LogError: the coordinator does not answer now. Nobody is known before this one has begun to join."""
        coordinator = None if self._consumer is None else self._consumer._coordinator  # noqa: SLF001
        if coordinator is None:
            return []
        try:
            async with asyncio.timeout(self._session_timeout):
                response = await coordinator._send_req(DescribeGroupsRequest([self.group]))  # noqa: SLF001
        except (KafkaError, TimeoutError) as error:
            raise LogError(f"the group {self.group!r} cannot be asked for its members: {error}") from error
        return [member_of(*member) for group in response.groups for member in group[5]]

    # -- parts -------------------------------------------------------------------------------------------------------
    def _hear_heartbeats(self) -> None:
        """aiokafka keeps what the group answers to itself."""
        coordinator = self._consumer._coordinator  # noqa: SLF001
        beat = coordinator._do_heartbeat  # noqa: SLF001

        async def heard() -> bool:
            left = time.monotonic()
            answered: bool = await beat()
            if answered:
                self._heard = left
            return answered

        coordinator._do_heartbeat = heard  # noqa: SLF001

    async def _connect(self) -> None:
        """A broker that goes away while a worker starts is waited for as one that is not there yet."""
        patience = RetryBudget(self._settings.kafka_connect_timeout, f"joining the group {self.group!r}")
        while True:
            self._consumer = self._new_consumer()
            try:
                await self._consumer.start()
            except KafkaError as error:
                await self._consumer.stop()
                await patience.bear(error if error.retriable else KafkaConnectionError(str(error)))
            else:
                return

    def _new_consumer(self) -> Any:
        session = round(self._session_timeout * 1000)
        options = client_options(self._addresses, self._settings)
        consumer = AIOKafkaConsumer(
            group_id=self.group,
            group_instance_id=self._settings.kafka_instance or None,
            partition_assignment_strategy=[_Assignor(self)],
            enable_auto_commit=False,
            auto_offset_reset="latest",
            session_timeout_ms=session,
            heartbeat_interval_ms=max(100, session // 5),
            rebalance_timeout_ms=_REBALANCE_MS,
            **options,
        )
        # Nothing is connected yet. With its own client, a connection that breaks at a bad moment ends the membership.
        consumer._client = Client(**options, quiet=True)  # noqa: SLF001
        return consumer

    @property
    def _failed(self) -> bool:
        return self._polling is not None and self._polling.done()

    def said(self) -> Said:
        return Said(self._since, list(self.owned), list(self._held()), self.name, self.address, dict(self._partitions))

    async def _poll(self) -> None:
        """Stay a member. What makes that impossible, such as a missing right, is raised where changes are awaited."""
        try:
            while True:
                await self._consumer.getmany(timeout_ms=0)
                await asyncio.sleep(_POLL_SECONDS)
                if self._replaced:
                    raise LogError(
                        f"another worker has taken the name {self._settings.kafka_instance!r} in the group "
                        f"{self.group!r}, so this one stops. Give each worker a kafka_instance of its own, or none."
                    )
        except KafkaError as error:
            raise LogError(f"cannot be a member of the group {self.group!r}: {error}") from error
        finally:
            async with self._assigned:
                self._assigned.notify_all()

    async def _is_replaced(self) -> bool:
        """Whether another process has joined under our name since. Kafka would say so in its answer to a heartbeat,
        but aiokafka's do not carry the name: two workers would take it from each other for ever."""
        name = self._settings.kafka_instance
        coordinator = self._consumer._coordinator  # noqa: SLF001
        if coordinator.member_id == self._identity:
            return False  # an ordinary rebalance
        try:
            response = await coordinator._send_req(DescribeGroupsRequest([self.group]))  # noqa: SLF001
        except KafkaError:
            return False
        known = [member[0] for group in response.groups for member in group[5]]
        return any(
            one.startswith(f"{name}-") and len(one) == len(name) + _UNIQUE and one != self._identity for one in known
        )

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        """Whose they are next is not known yet: they go on running until it is, or until the next owner fences them."""
        fault_point("group.rebalancing")
        if self._settings.kafka_instance and self._identity and await self._is_replaced():
            self._replaced = True
            await asyncio.Event().wait()  # the join that comes next would take the name back; `leave` ends this

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        fault_point("group.assigned")
        self._consumer.pause(*assigned)
        self.owned = frozenset(TopicPartition(task.topic, task.partition) for task in assigned)
        self.generation += 1
        self._heard = time.monotonic()
        coordinator = self._consumer._coordinator  # noqa: SLF001  it is told nowhere else
        self._since, self._identity = coordinator.generation, coordinator.member_id
        logger.debug("group %s, assignment %d: %d tasks", self.group, self.generation, len(self.owned))
        async with self._assigned:
            self._assigned.notify_all()


def _said(metadata: ConsumerProtocolMemberMetadata) -> Said:
    try:
        return msgspec.msgpack.decode(metadata.user_data, type=Said)
    except msgspec.MsgspecError:
        return Said(0, [], [])


def _member(metadata: ConsumerProtocolMemberMetadata, said: Said) -> Member:
    return Member(
        topics=frozenset(metadata.subscription),
        owned=frozenset(said.owned),
        generation=said.generation,
        held=frozenset(said.held),
    )


def _assignment(tasks: Iterable[TopicPartition]) -> ConsumerProtocolMemberAssignment:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(tasks):
        by_topic.setdefault(topic, []).append(number)
    return ConsumerProtocolMemberAssignment(_VERSION, list(by_topic.items()), b"")

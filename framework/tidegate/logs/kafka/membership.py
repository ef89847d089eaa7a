"""A worker's membership in its app's consumer group.

The group assigns tasks, identified by their changelogs' partitions, through our own assignor. The consumer only serves
the membership: its assigned partitions are paused at once, and polling keeps it a member. Its callbacks only record the
change: aiokafka sends no heartbeat while one runs, and swallows its exceptions.
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
from tidegate.logs.assignment import Member, assign_tasks
from tidegate.logs.base import TopicPartition
from tidegate.logs.kafka.connection.broker_errors import RetryBudget
from tidegate.logs.kafka.connection.client import Client
from tidegate.logs.kafka.connection.options import client_options
from tidegate.logs.kafka.groups import MemberMetadata, member_of
from tidegate.logs.membership import LocalTasks, process_name
from tidegate.logs.observer import Worker
from tidegate.settings import KafkaSettings

__all__ = ("KafkaMembership",)

logger = logging.getLogger(__name__)

_VERSION: Final = 0
_POLL_SECONDS: Final = 0.5
_UNIQUE: Final = 37
"""How much longer the member id of a static member is than its instance id: by a dash and a UUID."""
_REBALANCE_MS: Final = 60_000
"""How long a rebalance waits for a member that does not rejoin; a live member rejoins at once."""


class _Assignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """Assigns tasks with `assign_tasks`. An instance instead of a class, since it provides one member's metadata."""

    name = "tidegate"

    def __init__(self, membership: KafkaMembership) -> None:
        self._membership = membership

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        user_data = msgspec.msgpack.encode(self._membership.metadata())
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), user_data)

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        metadata_of = {name: _decode(metadata) for name, metadata in members.items()}
        known = {name: _member(metadata, metadata_of[name]) for name, metadata in members.items()}
        # The metadata contains the partition counts: the client may not know a new topic yet, and a member that got no
        # tasks for that reason would have none until the next rebalance.
        counts: Counter[str] = Counter()
        for one in metadata_of.values():
            counts |= Counter(one.partitions)
        tasks = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        return {name: _assignment(given) for name, given in assign_tasks(tasks, known).items()}

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        pass


class KafkaMembership(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, group: str, addresses: Sequence[str], settings: KafkaSettings, *, address: str = "") -> None:
        """`address`: the URL of this worker's API, for the other members."""
        self.group, self.address = group, address
        self.owned: frozenset[TopicPartition] = frozenset()
        self.generation = 0
        self._group_generation = 0
        """The group's generation: common to all members, so that claims can be compared."""
        self._member_id = ""
        self._replaced = False
        self._local: LocalTasks = tuple
        self._partitions: dict[str, int] = {}
        self.name = process_name()
        self._last_heartbeat = float("-inf")
        """When the last heartbeat was sent that the group has answered."""
        self._addresses, self._settings = addresses, settings
        self._session_timeout = settings.kafka_session_timeout
        self._consumer: Any = None
        self._polling: asyncio.Task[None] | None = None
        self._assigned = asyncio.Condition()

    # -- the contract ------------------------------------------------------------------------------------------------
    async def join(self, tasks: Iterable[TopicPartition], local: LocalTasks) -> None:
        self._local, self._partitions = local, dict(Counter(task.topic for task in tasks))
        topics = sorted(self._partitions)
        if not topics:
            self.generation += 1
            return
        await self._connect()
        self._observe_heartbeats()
        self._consumer.subscribe(topics, listener=self)
        self._polling = asyncio.create_task(self._poll(), name=f"membership of {self.group}")
        await self.changed(0)

    async def changed(self, generation: int) -> None:
        async with self._assigned:
            await self._assigned.wait_for(lambda: self.generation > generation or self._failed)
        if self._failed and self._polling is not None:
            self._polling.result()

    async def confirm(self) -> bool:
        """Commits offsets that nothing reads: the group accepts them from members of the current generation only."""
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
    def session_valid(self) -> bool:
        """Counts from when the heartbeat was sent: the session that it renews begins later."""
        return time.monotonic() - self._last_heartbeat < self._session_timeout

    async def workers(self) -> list[Worker]:
        """LogError: the coordinator does not answer. Empty before this worker joins."""
        coordinator = None if self._consumer is None else self._consumer._coordinator  # noqa: SLF001
        if coordinator is None:
            return []
        try:
            async with asyncio.timeout(self._session_timeout):
                response = await coordinator._send_req(DescribeGroupsRequest([self.group]))  # noqa: SLF001
        except (KafkaError, TimeoutError) as error:
            raise LogError(f"the members of the group {self.group!r} cannot be listed: {error}") from error
        return [member_of(*member) for group in response.groups for member in group[5]]

    # -- parts -------------------------------------------------------------------------------------------------------
    def _observe_heartbeats(self) -> None:
        """Wraps aiokafka's heartbeat, which does not expose the group's response."""
        coordinator = self._consumer._coordinator  # noqa: SLF001
        heartbeat = coordinator._do_heartbeat  # noqa: SLF001

        async def observed() -> bool:
            sent = time.monotonic()
            succeeded: bool = await heartbeat()
            if succeeded:
                self._last_heartbeat = sent
            return succeeded

        coordinator._do_heartbeat = observed  # noqa: SLF001

    async def _connect(self) -> None:
        """Retries connection errors, for example when a broker goes down while a worker starts."""
        budget = RetryBudget(self._settings.kafka_connect_timeout, f"joining the group {self.group!r}")
        while True:
            self._consumer = self._new_consumer()
            try:
                await self._consumer.start()
            except KafkaError as error:
                await self._consumer.stop()
                await budget.wait_or_raise(error if error.retriable else KafkaConnectionError(str(error)))
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
        # Nothing is connected yet. aiokafka's default client ends the membership when certain connections break.
        consumer._client = Client(**options, quiet=True)  # noqa: SLF001
        return consumer

    @property
    def _failed(self) -> bool:
        return self._polling is not None and self._polling.done()

    def metadata(self) -> MemberMetadata:
        return MemberMetadata(
            self._group_generation,
            list(self.owned),
            list(self._local()),
            self.name,
            self.address,
            dict(self._partitions),
        )

    async def _poll(self) -> None:
        """Keeps the membership alive. `changed` raises its error, for example of a missing permission."""
        try:
            while True:
                await self._consumer.getmany(timeout_ms=0)
                await asyncio.sleep(_POLL_SECONDS)
                if self._replaced:
                    raise LogError(
                        f"another worker has joined the group {self.group!r} with the same kafka_instance "
                        f"{self._settings.kafka_instance!r}, so this one stops. Give each worker a kafka_instance of "
                        f"its own, or none."
                    )
        except KafkaError as error:
            raise LogError(f"this worker cannot be a member of the group {self.group!r}: {error}") from error
        finally:
            async with self._assigned:
                self._assigned.notify_all()

    async def _is_replaced(self) -> bool:
        """Whether another process has joined with our instance id since. A broker reports that in its response to a
        heartbeat that contains the instance id, but aiokafka's do not: two workers would replace each other forever."""
        name = self._settings.kafka_instance
        coordinator = self._consumer._coordinator  # noqa: SLF001
        if coordinator.member_id == self._member_id:
            return False  # an ordinary rebalance
        try:
            response = await coordinator._send_req(DescribeGroupsRequest([self.group]))  # noqa: SLF001
        except KafkaError:
            return False
        known = [member[0] for group in response.groups for member in group[5]]
        return any(
            one.startswith(f"{name}-") and len(one) == len(name) + _UNIQUE and one != self._member_id for one in known
        )

    async def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        """The new owners are not known yet: the tasks keep running until the assignment, or until a new owner fences
        them."""
        fault_point("group.rebalancing")
        if self._settings.kafka_instance and self._member_id and await self._is_replaced():
            self._replaced = True
            await asyncio.Event().wait()  # the next join would replace the other worker; `leave` cancels this

    async def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        fault_point("group.assigned")
        self._consumer.pause(*assigned)
        self.owned = frozenset(TopicPartition(task.topic, task.partition) for task in assigned)
        self.generation += 1
        self._last_heartbeat = time.monotonic()
        coordinator = self._consumer._coordinator  # noqa: SLF001  not exposed elsewhere
        self._group_generation, self._member_id = coordinator.generation, coordinator.member_id
        logger.debug("group %s, assignment %d: %d tasks", self.group, self.generation, len(self.owned))
        async with self._assigned:
            self._assigned.notify_all()


def _decode(subscription: ConsumerProtocolMemberMetadata) -> MemberMetadata:
    try:
        return msgspec.msgpack.decode(subscription.user_data, type=MemberMetadata)
    except msgspec.MsgspecError:
        return MemberMetadata(0, [], [])


def _member(subscription: ConsumerProtocolMemberMetadata, metadata: MemberMetadata) -> Member:
    return Member(
        topics=frozenset(subscription.subscription),
        owned=frozenset(metadata.owned),
        generation=metadata.generation,
        held=frozenset(metadata.held),
    )


def _assignment(tasks: Iterable[TopicPartition]) -> ConsumerProtocolMemberAssignment:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(tasks):
        by_topic.setdefault(topic, []).append(number)
    return ConsumerProtocolMemberAssignment(_VERSION, list(by_topic.items()), b"")

"""The brokers of a cluster: connections, metadata, leaders and coordinators, offsets of partitions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka.client import CoordinationType
from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
    SaslAuthenticationFailed,
    StaleMetadata,
    UnknownTopicOrPartitionError,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.admin import DeleteRecordsRequest
from aiokafka.protocol.offset import OffsetRequest

from tidegate.errors import LogError, LogUnavailableError, UnknownTopicError
from tidegate.logs.base import TopicPartition
from tidegate.logs.kafka.connection.broker_errors import RetryBudget, error_of
from tidegate.logs.kafka.connection.client import CLOSE_SECONDS, Client, Lane
from tidegate.logs.kafka.connection.options import connection_options
from tidegate.settings import KafkaSettings

__all__ = ("EARLIEST", "LATEST", "READ_COMMITTED", "READ_UNCOMMITTED", "Cluster", "by_topic")

logger = logging.getLogger(__name__)

EARLIEST: Final = -2
LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_LOG_WAITING_SECONDS: Final = 2.0
"""After this time, a start without a reachable broker logs that it is waiting."""
_REFUSED = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)


class Cluster:
    """One client that a log's readers and writers share."""

    def __init__(self, addresses: Sequence[str], settings: KafkaSettings) -> None:
        self.addresses, self.settings = tuple(addresses), settings
        self._options = connection_options(settings)
        self._started: Client | None = None
        self._tracked: set[str] = set()
        """The topics of metadata requests."""

    @property
    def where(self) -> str:
        return f"kafka://{','.join(self.addresses)}"

    @property
    def _client(self) -> Client:
        if self._started is None:
            raise LogError(f"the log at {self.where} is not running")
        return self._started

    async def start(self) -> None:
        """Connect to the cluster. LogUnavailableError: no broker is reachable."""
        budget = RetryBudget(self.settings.kafka_connect_timeout, f"connecting to {self.where}")
        waiting = asyncio.get_running_loop().call_later(_LOG_WAITING_SECONDS, self._log_waiting)
        try:
            await self._connect(budget)
        finally:
            waiting.cancel()

    def _log_waiting(self) -> None:
        seconds = self.settings.kafka_connect_timeout
        logger.info("waiting for a broker at %s, for %g s at most (kafka_connect_timeout)", self.where, seconds)

    async def _connect(self, budget: RetryBudget) -> None:
        while True:
            try:
                await self._probe()
                client = Client(self.addresses, **self._options)
                await client.bootstrap()
            except (TimeoutError, OSError, KafkaError) as error:
                await self._wait_or_raise(error, budget)
            else:
                self._started = client
                return

    async def stop(self) -> None:
        client, self._started = self._started, None
        if client is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(client.close(), CLOSE_SECONDS)

    async def _probe(self) -> None:
        """Connect once to any of the addresses: aiokafka's bootstrap does not expose why it failed."""
        failure: BaseException = KafkaConnectionError("no address")
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            try:
                connection = await create_conn(host.strip("[]"), int(port), **self._options)
            except _REFUSED:
                raise
            except (TimeoutError, OSError, KafkaError) as error:
                failure = error
            else:
                connection.close()
                return
        raise failure

    async def _wait_or_raise(self, error: BaseException, budget: RetryBudget) -> None:
        if isinstance(error, _REFUSED):
            raise LogError(
                f"{self.where} refuses the login: {error}. Check kafka_sasl_mechanism, kafka_sasl_username and "
                f"TIDEGATE_KAFKA_SASL_PASSWORD."
            ) from error
        if isinstance(error, ssl.SSLCertVerificationError):
            raise LogError(
                f"the certificate of {self.where} is not trusted: {error}. Name the authority that signed it "
                f"(kafka_tls_ca), and address brokers by the names in their certificates."
            ) from error
        retriable = error if isinstance(error, KafkaError) and error.retriable else KafkaConnectionError(repr(error))
        try:
            await budget.wait_or_raise(retriable)
        except LogUnavailableError:
            raise LogUnavailableError(
                f"no broker answers at {self.where}: {_reason(error)}. Does one run there, and does it listen for "
                f"{self._options['security_protocol']}? 'tidegate kafka start' starts one on this machine."
            ) from error

    # -- requests -----------------------------------------------------------------------------------------------------

    async def send(self, node: int, request: Any, lane: Lane = 0) -> Any:
        """Send a request to a broker. KafkaError: it does not answer."""
        return await self._client.send(node, request, group=lane)

    async def close_lane(self, lane: Lane) -> None:
        if self._started is not None:
            await self._started.close_lane(lane)

    @property
    def nodes(self) -> list[int]:
        return [broker.nodeId for broker in self._client.cluster.brokers()]

    @property
    def any_node(self) -> int:
        return random.choice(self.nodes)  # noqa: S311  to spread the load, not to hide anything

    async def coordinator(self, transactional_id: str) -> int:
        node: int = await self._client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
        return node

    async def group_coordinator(self, group: str) -> int:
        node: int = await self._client.coordinator_lookup(CoordinationType.GROUP, group)
        return node

    async def controller(self) -> int:
        """The controller, for changes of topics. If it is unknown, any broker, which forwards requests."""
        known = self._client.cluster.controller
        if known is None:
            await self.refresh()
            known = self._client.cluster.controller
        return known.nodeId if known is not None else self.any_node

    # -- metadata -----------------------------------------------------------------------------------------------------

    def leader(self, source: TopicPartition) -> int | None:
        """The leader of a partition, from the cached metadata; None: unknown."""
        node: int | None = self._client.cluster.leader_for_partition(source)
        return None if node is None or node < 0 else node

    def is_tracked(self, source: TopicPartition) -> bool:
        """Whether the cached metadata contains the partition."""
        return self._client.cluster.leader_for_partition(source) is not None

    async def refresh(self) -> None:
        """Update the metadata."""
        await self._client.force_metadata_update()

    async def all_topics(self) -> Mapping[str, int]:
        """The partition counts of all topics, without the brokers' internal ones."""
        try:
            metadata = await self._client.fetch_all_metadata()
        except KafkaError as error:  # aiokafka raises a plain KafkaError if no broker answers
            raise (error if error.retriable else StaleMetadata(str(error))) from error
        return {topic: len(metadata.partitions_for_topic(topic)) for topic in metadata.topics()}

    async def track(self, sources: Iterable[TopicPartition]) -> None:
        """Load the metadata of partitions, and keep it up to date. UnknownTopicError: there is no such partition."""
        missing = [source for source in sources if not self.is_tracked(source)]
        if not missing:
            return
        budget = RetryBudget(self.settings.kafka_request_timeout, f"metadata of topics from {self.where}")
        while True:
            try:
                topics = await self.all_topics()
                if self._tracked and not topics:  # a broker that was suspended may return no topics at first
                    raise StaleMetadata("the metadata contains no topics")
            except KafkaError as error:
                await budget.wait_or_raise(error)
                continue
            for source in missing:
                if source.partition >= topics.get(source.topic, 0):
                    raise UnknownTopicError(str(source) if source.topic in topics else source.topic, topics)
            self._tracked.update(source.topic for source in missing)
            await self._client.set_topics(self._tracked)
            if not all(map(self.is_tracked, missing)):
                await self.refresh()
            if all(map(self.is_tracked, missing)):
                return
            await budget.wait_or_raise(StaleMetadata(f"no leader of {missing[0]} yet"))

    def untrack(self, topics: Iterable[str]) -> None:
        """Remove topics from metadata requests."""
        self._tracked.difference_update(topics)
        self._client.set_topics(self._tracked)

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def offsets(
        self, sources: Iterable[TopicPartition], when: int, isolation: int = READ_COMMITTED
    ) -> Mapping[TopicPartition, int]:
        """The start or end offsets of partitions, by default the last stable ones. UnknownTopicError: there is no such
        partition."""
        wanted = list(sources)
        budget = RetryBudget(self.settings.kafka_request_timeout, f"offsets from {self.where}")
        while True:
            try:
                await self.track(wanted)
                return await self._offsets(wanted, when, isolation)
            except UnknownTopicOrPartitionError as error:
                self.untrack(source.topic for source in wanted)
                await budget.wait_or_raise(error)
            except KafkaError as error:
                await budget.wait_or_raise(error)
                if error.invalid_metadata:
                    await self.refresh()

    async def delete_records(self, starts: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets."""
        budget = RetryBudget(self.settings.kafka_request_timeout, f"deleting records at {self.where}")
        while True:
            try:
                await self.track(starts)
                for node, led in self._by_leader(starts).items():
                    await self._delete_records(node, {source: starts[source] for source in led})
            except KafkaError as error:
                await budget.wait_or_raise(error)
                await self.refresh()
            else:
                return

    async def _delete_records(self, node: int, starts: Mapping[TopicPartition, int]) -> None:
        topics = [
            (topic, [(number, starts[TopicPartition(topic, number)]) for number in numbers])
            for topic, numbers in by_topic(starts)
        ]
        request = DeleteRecordsRequest(topics, int(self.settings.kafka_request_timeout * 1000))
        response = await self.send(node, request)
        for topic, partitions, *_ in response.topics:
            for number, _, code, *_ in partitions:
                error = error_of(code, TopicPartition(topic, number))
                if error is not None and not isinstance(error, OffsetOutOfRangeError):  # already deleted
                    raise error

    def _by_leader(self, sources: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        by_node: dict[int, list[TopicPartition]] = {}
        for source in sources:
            node = self.leader(source)
            if node is None:
                raise StaleMetadata(f"no leader of {source} is known")
            by_node.setdefault(node, []).append(source)
        return by_node

    async def _offsets(
        self, sources: Iterable[TopicPartition], when: int, isolation: int
    ) -> Mapping[TopicPartition, int]:
        requests = [self._offsets_at(node, led, when, isolation) for node, led in self._by_leader(sources).items()]
        found: dict[TopicPartition, int] = {}
        for offsets in await asyncio.gather(*requests):
            found |= offsets
        return found

    async def _offsets_at(
        self, node: int, sources: Iterable[TopicPartition], when: int, isolation: int
    ) -> dict[TopicPartition, int]:
        topics = [(topic, [(number, when) for number in numbers]) for topic, numbers in by_topic(sources)]
        response = await self.send(node, OffsetRequest(-1, isolation, topics))
        found = {}
        for topic, partitions in response.topics:
            for number, code, _, offset in partitions:
                source = TopicPartition(topic, number)
                if (error := error_of(code, source)) is not None:
                    raise error
                found[source] = offset
        return found


def by_topic(sources: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sources:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__

"""The brokers: which there are, who leads what, and the connections to them."""

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
from tidegate.logs.kafka.connection.client import GOODBYE, Client, Lane
from tidegate.logs.kafka.connection.options import connection_options
from tidegate.settings import KafkaSettings

__all__ = ("EARLIEST", "LATEST", "READ_COMMITTED", "READ_UNCOMMITTED", "Cluster", "by_topic")

logger = logging.getLogger(__name__)

EARLIEST: Final = -2
LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_TELL_SECONDS: Final = 2.0
"""After so long, whoever starts is told that there is no broker yet."""
_REFUSED = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)


class Cluster:
    """One client for all that a log's readers and writers ask."""

    def __init__(self, addresses: Sequence[str], settings: KafkaSettings) -> None:
        self.addresses, self.settings = tuple(addresses), settings
        self._options = connection_options(settings)
        self._started: Client | None = None
        self._tracked: set[str] = set()
        """The topics that are asked about when metadata is refreshed."""

    @property
    def where(self) -> str:
        return f"kafka://{','.join(self.addresses)}"

    @property
    def _client(self) -> Client:
        if self._started is None:
            raise LogError(f"the log at {self.where} is not running")
        return self._started

    async def start(self) -> None:
        """Find the brokers. LogUnavailableError says what to try when there are none."""
        patience = RetryBudget(self.settings.kafka_connect_timeout, f"connecting to {self.where}")
        telling = asyncio.get_running_loop().call_later(_TELL_SECONDS, self._tell_of_waiting)
        try:
            await self._connect(patience)
        finally:
            telling.cancel()

    def _tell_of_waiting(self) -> None:
        seconds = self.settings.kafka_connect_timeout
        logger.info("waiting for a broker at %s, for %g s at most (kafka_connect_timeout)", self.where, seconds)

    async def _connect(self, patience: RetryBudget) -> None:
        while True:
            try:
                await self._knock()
                client = Client(self.addresses, **self._options)
                await client.bootstrap()
            except (TimeoutError, OSError, KafkaError) as error:
                await self._try_later(error, patience)
            else:
                self._started = client
                return

    async def stop(self) -> None:
        client, self._started = self._started, None
        if client is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(client.close(), GOODBYE)

    async def _knock(self) -> None:
        """Connect once to any of the addresses: aiokafka's own first connection keeps to itself why it failed."""
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

    async def _try_later(self, error: BaseException, patience: RetryBudget) -> None:
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
        passing = error if isinstance(error, KafkaError) and error.retriable else KafkaConnectionError(repr(error))
        try:
            await patience.bear(passing)
        except LogUnavailableError:
            raise LogUnavailableError(
                f"no broker answers at {self.where}: {_reason(error)}. Does one run there, and does it listen for "
                f"{self._options['security_protocol']}? 'tidegate kafka start' starts one on this machine."
            ) from error

    # -- asking -------------------------------------------------------------------------------------------------------

    async def send(self, node: int, request: Any, lane: Lane = 0) -> Any:
        """Ask a broker. KafkaError when it does not answer."""
        return await self._client.send(node, request, group=lane)

    async def hang_up(self, lane: Lane) -> None:
        if self._started is not None:
            await self._started.hang_up(lane)

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
        """Whom to ask for changes of topics; any broker passes it on."""
        known = self._client.cluster.controller
        if known is None:
            await self.refresh()
            known = self._client.cluster.controller
        return known.nodeId if known is not None else self.any_node

    # -- metadata -----------------------------------------------------------------------------------------------------

    def leader(self, source: TopicPartition) -> int | None:
        """The broker that leads a partition, as far as is known."""
        node: int | None = self._client.cluster.leader_for_partition(source)
        return None if node is None or node < 0 else node

    def knows(self, source: TopicPartition) -> bool:
        return self._client.cluster.leader_for_partition(source) is not None

    async def refresh(self) -> None:
        """Ask again who leads what."""
        await self._client.force_metadata_update()

    async def all_topics(self) -> Mapping[str, int]:
        """Every topic but the brokers' own, with its number of partitions."""
        try:
            metadata = await self._client.fetch_all_metadata()
        except KafkaError as error:  # that no broker answers is a plain KafkaError there
            raise (error if error.retriable else StaleMetadata(str(error))) from error
        return {topic: len(metadata.partitions_for_topic(topic)) for topic in metadata.topics()}

    async def know(self, sources: Iterable[TopicPartition]) -> None:
        """Find out about partitions that are not known yet. UnknownTopicError when there is no such."""
        missing = [source for source in sources if not self.knows(source)]
        if not missing:
            return
        patience = RetryBudget(self.settings.kafka_request_timeout, f"asking {self.where} about topics")
        while True:
            try:
                topics = await self.all_topics()
                if self._tracked and not topics:  # a broker that halts for a while may come back with nothing at first
                    raise StaleMetadata("the brokers know of no topics any more")
            except KafkaError as error:
                await patience.bear(error)
                continue
            for source in missing:
                if source.partition >= topics.get(source.topic, 0):
                    raise UnknownTopicError(str(source) if source.topic in topics else source.topic, topics)
            self._tracked.update(source.topic for source in missing)
            await self._client.set_topics(self._tracked)
            if not all(map(self.knows, missing)):
                await self.refresh()
            if all(map(self.knows, missing)):
                return
            await patience.bear(StaleMetadata(f"no leader of {missing[0]} yet"))

    def forget(self, topics: Iterable[str]) -> None:
        """Do not ask about these any more."""
        self._tracked.difference_update(topics)
        self._client.set_topics(self._tracked)

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def offsets(
        self, sources: Iterable[TopicPartition], when: int, isolation: int = READ_COMMITTED
    ) -> Mapping[TopicPartition, int]:
        """The first or the last offsets of partitions, by default the stable ones. UnknownTopicError when there is no
        such."""
        wanted = list(sources)
        patience = RetryBudget(self.settings.kafka_request_timeout, f"asking {self.where} for offsets")
        while True:
            try:
                await self.know(wanted)
                return await self._offsets(wanted, when, isolation)
            except UnknownTopicOrPartitionError as error:
                self.forget(source.topic for source in wanted)
                await patience.bear(error)
            except KafkaError as error:
                await patience.bear(error)
                if error.invalid_metadata:
                    await self.refresh()

    async def delete_records(self, starts: Mapping[TopicPartition, int]) -> None:
        """Those below these offsets."""
        patience = RetryBudget(self.settings.kafka_request_timeout, f"asking {self.where} to delete records")
        while True:
            try:
                await self.know(starts)
                for node, led in self._by_leader(starts).items():
                    await self._delete_records(node, {source: starts[source] for source in led})
            except KafkaError as error:
                await patience.bear(error)
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
                if error is not None and not isinstance(error, OffsetOutOfRangeError):  # they are gone already
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
        asked = [self._ask_offsets(node, led, when, isolation) for node, led in self._by_leader(sources).items()]
        found: dict[TopicPartition, int] = {}
        for answer in await asyncio.gather(*asked):
            found |= answer
        return found

    async def _ask_offsets(
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

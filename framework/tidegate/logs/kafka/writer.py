"""The writer of a Kafka log: idempotent produce and transactions on the protocol level.

A writer has no connection and no task of its own: it is a producer id, an epoch, and sequence numbers. After any
failure it is discarded, so it needs no recovery of its own; a new writer learns from the brokers what was committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka import errors
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from tidegate import faults
from tidegate.errors import (
    FencedError,
    LogError,
    LogUnavailableError,
    RecordRefusedError,
    RecordTooLargeError,
    TidegateError,
    UsageError,
)
from tidegate.logs.base import Records, TopicPartition
from tidegate.logs.kafka.connection.broker_errors import RetryBudget, error_of, is_retriable, to_log_error
from tidegate.logs.kafka.connection.client import Lane
from tidegate.logs.kafka.connection.cluster import LATEST, Cluster, by_topic
from tidegate.logs.kafka.record_batches import CODECS, PartitionBatches, Producer
from tidegate.logs.kafka.topics import Topics
from tidegate.logs.records import check_keys, record_size

__all__ = ("KafkaWriter",)

ABORT_SECONDS: Final = 1.0
"""How long a failed writer tries to abort its transaction; after that, opening its successor does."""
REQUEST_BYTES: Final = 16 << 20
"""Approximate limit of one request."""
_ALL: Final = -1
"""acks=all: acknowledged by all in-sync replicas."""
_NO_TIMEOUT: Final = 2**31 - 1
_INVALID_RECORD: Final = 87
_TURNS: Final = 3
"""Turns of the event loop after which a request was sent."""
_PRODUCER_FENCED: Final = 90
_FENCED: Final = (errors.InvalidProducerEpoch.errno, _PRODUCER_FENCED)
_TOO_LARGE: Final = (errors.MessageSizeTooLargeError.errno, errors.RecordListTooLargeError.errno)
_REFUSED: Final = (errors.InvalidTimestampError.errno, _INVALID_RECORD)

Positions = Mapping[TopicPartition, int]


class KafkaWriter:
    """A Writer into a Kafka cluster.

    1. Check and encode the records. An invalid record fails the append before anything is sent.
    2. Add the partitions to the transaction at its coordinator.
    3. Send the batches, and wait until each is acknowledged. A refused batch fails the append: the transaction would
       commit without it.
    4. Repeat 1 to 3 with the records that `then` returns.
    5. End the transaction. Without an answer the outcome is unknown, and the append fails.
    Batches without an answer are sent again unchanged: brokers detect duplicates by sequence number.
    Without a transactional id, steps 2 and 5 are left out: batches acknowledged before a failure stay."""

    def __init__(self, cluster: Cluster, topics: Topics, transactional_id: str | None, lane: Lane) -> None:
        self.transactional_id = transactional_id
        self._cluster, self._topics, self._lane = cluster, topics, lane
        self._settings = cluster.settings
        self._producer: Producer | None = None
        self._coordinator: int | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._open: set[TopicPartition] = set()
        """The partitions of the open transaction."""

    async def start(self) -> None:
        """Get a producer id. With a transactional id: fence earlier writers, and end their open transaction."""
        timeout = int(self._settings.kafka_transaction_timeout * 1000) if self.transactional_id else _NO_TIMEOUT
        request = InitProducerIdRequest(self.transactional_id, timeout)
        budget = self._retry_budget("opening a writer", at_least=self._settings.kafka_request_timeout)
        try:
            async with budget.limited():
                response = await self._call_coordinator(request, budget)
        except errors.InvalidTransactionTimeout as error:
            raise LogError(
                f"the brokers do not allow a kafka_transaction_timeout of {self._settings.kafka_transaction_timeout:g} "
                f"s: lower it, or raise their transaction.max.timeout.ms"
            ) from error
        self._producer = Producer(
            id=response.producer_id,
            epoch=response.producer_epoch,
            transactional=self.transactional_id is not None,
            codec=CODECS[self._settings.kafka_compression],
            limit=self._settings.kafka_max_request_bytes,
        )

    async def append(self, records: Records, then: Callable[[Positions], Records] | None = None) -> Positions:
        budget = self._retry_budget("appending")
        try:
            async with budget.limited():
                positions = await self._append(records, {}, budget)
                if then is not None:
                    positions |= await self._append(then(dict(positions)), positions, budget)
                if self._open:
                    await self._end(commit=True, budget=budget)
        except (FencedError, LogUnavailableError):
            self._open.clear()  # an abort is impossible, or would fail
            raise
        except Exception:
            await self.close()
            raise
        return positions

    async def close(self) -> None:
        """Abort the open transaction, if the brokers answer quickly."""
        if self._open:
            budget = RetryBudget(ABORT_SECONDS, "aborting a transaction")
            with contextlib.suppress(TidegateError):
                async with budget.limited():
                    await self._end(commit=False, budget=budget)
        self._open.clear()

    # -- the steps ----------------------------------------------------------------------------------------------------

    async def _append(self, records: Records, before: Positions, budget: RetryBudget) -> dict[TopicPartition, int]:
        uploads = [upload for upload in await self._encode(records, before) if not upload.done]
        if self.transactional_id is not None and uploads:
            await self._add_partitions([upload.source for upload in uploads], budget)
        await self._upload(uploads, budget)
        positions = {upload.source: upload.position for upload in uploads}
        self._sequences.update((upload.source, upload.sequence) for upload in uploads)
        if len(positions) < len(records):
            positions |= await self._cluster.offsets(records.keys() - positions.keys(), LATEST)
        return positions

    async def _encode(self, records: Records, before: Positions) -> list[PartitionBatches]:
        """Step 1."""
        if self._producer is None:
            raise UsageError("a writer must be started before it is used")
        uploads = []
        for source, new in records.items():
            if source in before:
                raise UsageError(f"a transaction has {source} in both of its parts: their partitions must be disjoint")
            if not self._cluster.is_tracked(source):
                await self._cluster.track([source])
            if await self._topics.is_compacted(source.topic):
                check_keys(source, new)
            uploads.append(PartitionBatches(self._producer, source, new, self._sequences.get(source, 0)))
        return uploads

    async def _add_partitions(self, sources: Iterable[TopicPartition], budget: RetryBudget) -> None:
        """Step 2."""
        producer, new = self._producer, [source for source in sources if source not in self._open]
        if producer is not None and new:
            request = AddPartitionsToTxnRequest(self.transactional_id, producer.id, producer.epoch, by_topic(new))
            self._open.update(new)
            await self._call_coordinator(request, budget)

    async def _upload(self, uploads: Sequence[PartitionBatches], budget: RetryBudget) -> None:
        """Step 3: one batch per partition at a time, in as few requests as possible."""
        while pending := [upload for upload in uploads if not upload.done]:
            failures = await self._send_all(pending)
            if failures:
                await budget.wait_or_raise(failures[0])
                if any(failure.invalid_metadata for failure in failures):
                    await self._cluster.refresh()
                    await self._cluster.track([upload.source for upload in pending])

    async def _end(self, *, commit: bool, budget: RetryBudget) -> None:
        """Step 5, without retries: a second request could overtake the first, which would then end the next transaction
        of this writer in its middle."""
        if self._producer is not None:
            producer = self._producer
            request = EndTxnRequest(self.transactional_id, producer.id, producer.epoch, commit)
            if faults.armed and commit:
                await self._end_with_fault_points(request, budget)
            else:
                await self._call_coordinator(request, budget, retry=False)
            self._open.clear()

    async def _end_with_fault_points(self, request: EndTxnRequest, budget: RetryBudget) -> None:
        """Step 5 in a test with an armed fault: before, during, or after it."""
        faults.fault_point("transaction.sent")
        ending = asyncio.ensure_future(self._call_coordinator(request, budget, retry=False))
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        try:
            faults.fault_point("transaction.ending")
        except BaseException:
            ending.cancel()
            raise
        await ending
        faults.fault_point("transaction.ended")

    # -- batches ------------------------------------------------------------------------------------------------------

    async def _send_all(self, uploads: Iterable[PartitionBatches]) -> list[errors.KafkaError]:
        """Send the next batch of each partition. Returns the retriable errors."""
        requests: list[tuple[int, list[PartitionBatches]]] = []
        room: dict[int, int] = {}
        for upload in uploads:
            node = self._cluster.leader(upload.source)
            if node is None:
                return [errors.StaleMetadata(f"no leader of {upload.source} is known")]
            if room.get(node, 0) < len(upload.batch):
                requests.append((node, []))
                room[node] = REQUEST_BYTES
            room[node] -= len(upload.batch)
            next(led for other, led in reversed(requests) if other == node).append(upload)
        if len(requests) == 1:
            return await self._produce(*requests[0])
        answers = await asyncio.gather(*(self._produce(node, led) for node, led in requests), return_exceptions=True)
        failures: list[errors.KafkaError] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            failures += answer
        return failures

    async def _produce(self, node: int, uploads: Iterable[PartitionBatches]) -> list[errors.KafkaError]:
        sent: dict[TopicPartition, PartitionBatches] = {upload.source: upload for upload in uploads}
        topics: dict[str, list[tuple[int, bytes]]] = {}
        for (topic, number), upload in sent.items():
            topics.setdefault(topic, []).append((number, upload.batch))
        timeout = int(self._settings.kafka_request_timeout * 1000)
        request = ProduceRequest(self.transactional_id, _ALL, timeout, list(topics.items()))
        try:
            response = await self._cluster.send(node, request, self._lane)
        except errors.KafkaError as error:
            return [error]
        failures = []
        for topic, partitions in response.topics:
            for number, code, offset, _, *details in partitions:
                upload = sent[TopicPartition(topic, number)]
                if code == 0:
                    upload.acknowledge(offset)
                elif (failure := await self._handle_error(upload, code, details)) is not None:
                    failures.append(failure)
        return failures

    async def _handle_error(
        self, upload: PartitionBatches, code: int, details: Sequence[Any]
    ) -> errors.KafkaError | None:
        """Raises a permanent error. Returns a retriable one, to retry after a wait; None: retry at once."""
        topic = upload.source.topic
        if code in _TOO_LARGE:
            if upload.single_record is None:
                upload.halve()
                return None
            limit = await self._topics.largest_message(topic)
            raise RecordTooLargeError(topic, record_size(upload.single_record), limit)
        if code in _REFUSED:
            message = details[2] if len(details) > 2 and details[2] else "its timestamp is out of the topic's range"
            raise RecordRefusedError(topic, message)
        error = self._error(code, upload.source)
        if error is None or is_retriable(error):
            return error
        raise to_log_error(error, f"appending to {upload.source}") from error

    # -- requests -----------------------------------------------------------------------------------------------------

    async def _call_coordinator(self, request: Any, budget: RetryBudget, *, retry: bool = True) -> Any:
        """Send a request to the coordinator of the transactional id, with retries. With `retry=False`, only errors that
        the coordinator answers with are retried, not a missing answer."""
        while True:
            try:
                if self._coordinator is None:
                    self._coordinator = await self._find_coordinator()
                response = await self._send(self._coordinator, request, retry=retry)
                for code, about in _codes(response):
                    if (error := self._error(code, about)) is not None:
                        raise error
            except errors.InvalidTransactionTimeout:
                raise
            except errors.KafkaError as error:
                await budget.wait_or_raise(error)
                if not isinstance(error, errors.ConcurrentTransactions):
                    self._coordinator = None
                if isinstance(error, errors.UnknownTopicOrPartitionError):
                    await self._cluster.refresh()
                    await self._cluster.track(self._open)
            else:
                return response

    async def _send(self, node: int, request: Any, *, retry: bool) -> Any:
        try:
            return await self._cluster.send(node, request, self._lane)
        except errors.NodeNotReadyError:
            raise  # there is no connection: nothing was sent
        except errors.KafkaError as error:
            if not retry:
                raise LogUnavailableError(
                    f"it is unknown whether the transaction of {self.transactional_id!r} was committed ({error})"
                ) from error
            raise

    async def _find_coordinator(self) -> int:
        if self.transactional_id is None:
            return self._cluster.any_node
        return await self._cluster.coordinator(self.transactional_id)

    def _error(self, code: int, about: object) -> errors.KafkaError | None:
        """The error of a code; None: no error. Raises FencedError."""
        if code in _FENCED:
            raise FencedError(self.transactional_id or "")
        return error_of(code, about)

    def _retry_budget(self, what: str, at_least: float = 0) -> RetryBudget:
        id_ = f" as {self.transactional_id!r}" if self.transactional_id else ""
        seconds = max(self._settings.kafka_transaction_timeout, at_least)
        return RetryBudget(seconds, f"{what}{id_} at {self._cluster.where}")


def _codes(response: Any) -> Iterable[tuple[int, object]]:
    """The error codes in a coordinator's response, each with its subject."""
    if hasattr(response, "error_code"):
        return [(response.error_code, "the transaction's coordinator")]
    not_tried = errors.OperationNotAttempted.errno
    return [
        (code, TopicPartition(topic, number))
        for topic, partitions in response.errors
        for number, code in partitions
        if code != not_tried
    ]

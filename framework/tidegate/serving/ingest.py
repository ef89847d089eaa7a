"""Ingestion over HTTP: records are validated against their topic and appended in one transaction, idempotently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.engine.topology.plan import Plan
from tidegate.errors import DataError, DecodeError, UnknownNameError
from tidegate.functions.topics import TopicDefinition
from tidegate.host.host import Host
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.serving.idempotency import IdempotentRequests
from tidegate.serving.position_tokens import Position
from tidegate.serving.record_builder import RecordBuilder, needs_key, typed_topic

__all__ = ("SendResult", "TopicSender", "declared_topics")


@dataclass(frozen=True, kw_only=True)
class SendResult:
    records: int
    position: Position
    again: bool = False
    """Nothing was written: an earlier request with this idempotency key was executed."""


def declared_topics(plan: Plan) -> Mapping[str, TopicDefinition]:
    """The topics that clients may send to and read from: those that the app declares."""
    return {name: typed_topic(plan, name) for name in plan.declared}


class TopicSender:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._makers: dict[str, RecordBuilder] = {}
        self._requests: IdempotentRequests | None = None
        self._resets = host.resets
        """The host's reset count when `_requests` was created."""

    async def send(self, topic: str, lines: Sequence[bytes], *, body: bytes, key: str | None) -> SendResult:
        """Append all records or none. `lines`: JSON objects with `value`, and optionally `key`, `timestamp` and
        `headers`. `key`: the idempotency key of the request, whose body is `body`."""
        records = self._records(topic, lines)
        host = self._host
        async with host.lock.shared():
            if key is not None:
                done = await (await self._current_requests()).write(key, f"{topic}\n".encode() + body, records)
                topics = {name: dict(reached) for name, reached in done.positions.items()}
                return SendResult(
                    records=len(lines), position=Position(host.engine.run_id, {}, topics), again=done.again
                )
            ends = await host.producer.send_together(records)
        reached = {source.partition: end for source, end in ends.items()}
        return SendResult(records=len(lines), position=Position(host.engine.run_id, {}, {topic: reached}))

    async def _current_requests(self) -> IdempotentRequests:
        """Reopened after a reset, which may have deleted the recorded results together with the records."""
        host = self._host
        if self._resets != host.resets:
            await self.close()
        if self._requests is None:
            self._requests, self._resets = IdempotentRequests(host.log, host.plan.app, host.clock), host.resets
        return self._requests

    async def close(self) -> None:
        requests, self._requests = self._requests, None
        if requests is not None:
            await requests.close()

    def _records(self, topic: str, lines: Sequence[bytes]) -> dict[TopicPartition, list[NewRecord]]:
        maker = self._maker(topic)
        records: dict[TopicPartition, list[NewRecord]] = {}
        for number, line in enumerate(lines):
            try:
                partition, *record = maker.make(line)
            except DataError as error:
                raise DecodeError(f"records[{number}]: {error}") from error
            records.setdefault(TopicPartition(topic, partition), []).append(tuple(record))  # type: ignore[arg-type]
        return records

    def _maker(self, topic: str) -> RecordBuilder:
        maker = self._makers.get(topic)
        if maker is None:
            plan = self._host.plan
            if topic not in plan.declared:
                raise UnknownNameError("topic", topic, plan.declared)
            definition = typed_topic(plan, topic)
            maker = self._makers[topic] = RecordBuilder(
                definition,
                self._host.clock,
                keyed=needs_key(plan, definition),
                largest=self._host.log.max_record_bytes,
                envelopes=True,
                hint="Give it with each record, or declare",
            )
        return maker

"""Records that come from outside, over HTTP: checked as the topic says, appended together, once for each key."""

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
from tidegate.serving.record_maker import RecordMaker, needs_key, typed_topic

__all__ = ("Sent", "TopicSender", "open_topics")


@dataclass(frozen=True, kw_only=True)
class Sent:
    records: int
    position: Position
    again: bool = False
    """Nothing was written: an earlier request with the same idempotency key has done so."""


def open_topics(plan: Plan) -> Mapping[str, TopicDefinition]:
    """Those that anybody may send to, and read of: what the app's code declares."""
    return {name: typed_topic(plan, name) for name in plan.declared}


class TopicSender:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._makers: dict[str, RecordMaker] = {}
        self._requests: IdempotentRequests | None = None
        self._resets = host.resets
        """As of when the requests were known."""

    async def send(self, topic: str, lines: Sequence[bytes], *, body: bytes, key: str | None) -> Sent:
        """All records or none. `lines`: each a JSON object with value, and perhaps key, timestamp and headers; `key`:
        the request's idempotency key, under which `body` is carried out once."""
        records = self._records(topic, lines)
        host = self._host
        async with host.gate.together():
            if key is not None:
                done = await (await self._known_requests()).write(key, f"{topic}\n".encode() + body, records)
                topics = {name: dict(reached) for name, reached in done.positions.items()}
                return Sent(records=len(lines), position=Position(host.engine.run_id, {}, topics), again=done.again)
            ends = await host.outbox.send_together(records)
        reached = {source.partition: end for source, end in ends.items()}
        return Sent(records=len(lines), position=Position(host.engine.run_id, {}, {topic: reached}))

    async def _known_requests(self) -> IdempotentRequests:
        """What was carried out before a reset is looked up anew: it may be gone, and the records with it."""
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

    def _maker(self, topic: str) -> RecordMaker:
        maker = self._makers.get(topic)
        if maker is None:
            plan = self._host.plan
            if topic not in plan.declared:
                raise UnknownNameError("topic", topic, plan.declared)
            definition = typed_topic(plan, topic)
            maker = self._makers[topic] = RecordMaker(
                definition,
                self._host.clock,
                keyed=needs_key(plan, definition),
                largest=self._host.log.max_record_bytes,
                envelopes=True,
                hint="Give it with each record, or declare",
            )
        return maker

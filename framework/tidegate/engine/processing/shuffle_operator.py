"""The handler of a shuffle: it sends each record on by the key under which the service behind wants it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

from tidegate.engine.processing.context import ORIGIN_HEADER, TaskContext, own_headers
from tidegate.engine.processing.input import Chunk
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.topology.shuffle import ShuffleHandler
from tidegate.errors import MissingKeyError
from tidegate.keys import encode_key
from tidegate.logs.base import LogRecord
from tidegate.logs.records import check_size
from tidegate.time.clock import MIN_TIME
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("ShuffleOperator",)

_STRETCH: Final = 512
"""How many records are taken up at once, at most."""


class ShuffleOperator:
    """Sends the records of a task's inputs to the topic behind."""

    def __init__(self, time: CombinedWatermark, invoker: Invoker, time_moved: Callable[[], None]) -> None:
        self._time, self._invoker, self._time_moved = time, invoker, time_moved

    def run(self, handler: ShuffleHandler, context: TaskContext, chunk: Chunk, deadline: float) -> bool | None:
        """Send the chunk's records on. True: the time is up."""
        input_, channel, key_of = chunk.input, chunk.input.channel, handler.key
        decoding = key_of is not None or input_.extract is not None or (channel is not None and channel.bound is None)
        rest = [*chunk.records[chunk.index : chunk.index + _STRETCH]]
        for number, record in enumerate(chunk.follow(rest, chunk.index + len(rest)), 1):
            try:
                value = input_.decode(record.value) if decoding else None  # type: ignore[arg-type]
                timestamp = record.timestamp if input_.extract is None else input_.extract(value)
                mark = int(channel.generator.observe(timestamp, value)) if channel is not None else MIN_TIME
                context.begin(b"", timestamp, record, input_.source, timestamp <= self._time.watermark)
                key = record.key if key_of is None else encode_key(key_of(value))
                self._send(context, record, key, timestamp)
                if input_.topic.mailbox:
                    context.mail.pass_on(record)
            except Exception as error:
                self._invoker.unreadable(context, input_, record, error)
                continue
            if channel is not None and mark > channel.watermark:
                channel.watermark = mark
                self._time_moved()
            if number % 16 == 0 and perf_counter() >= deadline:
                return True
        return None

    @staticmethod
    def _send(context: TaskContext, record: LogRecord, key: bytes | None, timestamp: int) -> None:
        """The record as it is, under this key, and with the time that was found."""
        output, source = context.default_output, context.source
        assert output is not None  # noqa: S101  the plan gives a shuffle one
        assert source is not None  # noqa: S101  set when the record was begun
        if key is None:
            raise MissingKeyError(source.topic)
        where = f"{source.topic}:{source.partition}:{record.offset}".encode()
        headers = (*own_headers(record), (ORIGIN_HEADER, where), *context.stamp.headers)
        check_size(output.topic.name, (key, record.value, 0, headers), output.limit)
        context.emitted.extend((output.sources[output.place(key)], key, record.value, timestamp, headers))

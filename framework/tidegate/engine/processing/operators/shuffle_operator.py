"""The operator of a shuffle: it repartitions records by the key of the downstream service.

Without steps a record is forwarded unchanged: its value is decoded only if its key or its timestamp is computed from
it. With steps, its value is filtered, projected and combined first (see `ShuffleSteps`). Combined values are partial
results in memory, one per key. They belong to the commit that covers their records:

1. A record is combined with the partial result of its key since the last commit.
2. The commit emits one record per key, with the latest timestamp, in the epoch that it ends, and clears the results.
3. If the commit fails, or the worker ends, the results are lost, and their records, which are not committed, are read
   again.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from tidegate.engine.processing.context import ORIGIN_HEADER, TaskContext, own_headers
from tidegate.engine.processing.coroutine_driver import CoroutineDriver
from tidegate.engine.processing.input import Chunk, Input
from tidegate.engine.processing.invocation import Invoker
from tidegate.engine.processing.operators.operator import Pause
from tidegate.engine.processing.output import Output
from tidegate.engine.processing.run_queue import RunQueue
from tidegate.engine.topology.shuffle import ShuffleHandler
from tidegate.errors import DataError, MissingKeyError, ShuffleStepError
from tidegate.keys import encode_key
from tidegate.logs.base import Headers, LogRecord
from tidegate.logs.records import check_size
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("ShuffleOperator",)

_STRETCH: Final = 512
"""The maximum of records per run."""

Combine = Callable[[Any, Any], Any]


class ShuffleOperator:
    """Forwards the records of a task's inputs to the internal topic of the downstream service."""

    def __init__(self, time: CombinedWatermark, invoker: Invoker, run_queue: RunQueue) -> None:
        self._time, self._invoker, self._run_queue = time, invoker, run_queue
        self._partials: dict[Combine, dict[bytes, tuple[Any, int]]] = {}
        """Per combine function and key: the partial result since the last commit, and the latest timestamp."""

    @property
    def pending(self) -> int:
        """The number of combined records that the next commit will emit."""
        return sum(map(len, self._partials.values()))

    def run(self, driver: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> Pause:
        """Forward the records of the chunk."""
        input_, assigner, handler = chunk.input, chunk.input.time, chunk.input.handler
        assert isinstance(handler, ShuffleHandler)  # noqa: S101  the dispatcher has chosen by it
        decoding = handler.reads_values or assigner.extract is not None or assigner.generator is not None
        rest = [*chunk.records[chunk.index : chunk.index + _STRETCH]]
        for number, record in enumerate(chunk.follow(rest, chunk.index + len(rest)), 1):
            try:
                value = input_.read(record.value) if decoding else None
                timestamp = assigner.timestamp(value, record.timestamp)
                watermark = assigner.watermark(timestamp, value)
                context.begin(b"", timestamp, record, input_.source, timestamp <= self._time.watermark)
                self._place(handler, context, input_, record, value, timestamp)
            except Exception as error:
                self._invoker.unreadable(context, input_, record, error)
                continue
            if assigner.raises(watermark):
                self._run_queue.time_moved()
            if number % 16 == 0 and perf_counter() >= deadline:
                return Pause.TIME_UP
        return Pause.CONTINUE

    def _place(
        self,
        handler: ShuffleHandler,
        context: TaskContext,
        input_: Input,
        record: LogRecord,
        value: Any,
        timestamp: int,
    ) -> None:
        output = _output(context)
        steps = handler.steps
        if steps is None:
            key = record.key if handler.key is None else encode_key(handler.key(value))
            _send(context, output, input_, record, key, record.value, timestamp)
            if input_.topic.mailbox:
                context.mail.pass_on(record)
            return
        try:
            sent, projected = steps.apply(value, input_.codec)
            if not sent:
                return
            key = record.key if handler.key is None else encode_key(handler.key(value))
            if key is None:
                raise MissingKeyError(input_.source.topic)
            if steps.combine is not None:
                self._combine(steps.combine, key, projected, timestamp)
                return
        except DataError:
            raise
        except Exception as error:
            raise ShuffleStepError(input_.topic.name, error) from error
        raw = record.value if steps.project is None else output.topic.encode(projected)
        _send(context, output, input_, record, key, raw, timestamp)

    def _combine(self, combine: Combine, key: bytes, value: Any, timestamp: int) -> None:
        partials = self._partials.setdefault(combine, {})
        known = partials.get(key)
        if known is None:
            partials[key] = value, timestamp
        else:
            partials[key] = combine(known[0], value), max(known[1], timestamp)

    def flush(self, context: TaskContext) -> None:
        """Emit the results combined since the last commit, before the next one is frozen."""
        output, headers = _output(context), context.stamp.headers
        partials, self._partials = self._partials, {}
        for key, (value, timestamp) in ((key, partial) for keys in partials.values() for key, partial in keys.items()):
            _emit(context, output, key, output.topic.encode(value), timestamp, headers)


def _output(context: TaskContext) -> Output:
    assert context.default_output is not None  # noqa: S101  the plan gives a shuffle one
    return context.default_output


def _send(
    context: TaskContext,
    output: Output,
    input_: Input,
    record: LogRecord,
    key: bytes | None,
    raw: bytes | None,
    timestamp: int,
) -> None:
    """Emit the record under this key, with its headers and its origin."""
    if key is None:
        raise MissingKeyError(input_.source.topic)
    where = f"{input_.source.topic}:{input_.source.partition}:{record.offset}".encode()
    headers = (*own_headers(record), (ORIGIN_HEADER, where), *context.stamp.headers)
    _emit(context, output, key, raw, timestamp, headers)


def _emit(
    context: TaskContext, output: Output, key: bytes, raw: bytes | None, timestamp: int, headers: Headers
) -> None:
    check_size(output.topic.name, (key, raw, timestamp, headers), output.limit)
    context.emitted.extend((output.sources[output.place(key)], key, raw, timestamp, headers))

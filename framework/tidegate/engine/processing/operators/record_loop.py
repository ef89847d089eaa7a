"""The hot loop, which calls the handler for each record: one template, compiled into a variant per shape of service.

All steps of the common case are inlined and use local variables: a call per record and step would cost a third of the
throughput. Conditions that are the same for all records (is there a state? does the handler await? is a fault armed?)
are not tested per record: lines of the template are marked with the feature that they belong to, and a variant contains
the lines of its own features only:

    a line  #? feature         in variants with this feature
    a line  #? not feature     in variants without it

| feature | |
|---|---|
| `awaits` | the handler may suspend; without it the handler is called directly |
| `single` | the service has one plain state, whose entries are looked up for many records at once |
| `inline` | the handler gets the value of that state as a plain attribute (`InlineValue`) |
| `mutable` | a value may change in place, so it is encoded when the handler ends |
| `timers` | the service has timers |
| `extracted` | the timestamp is extracted from the value |
| `channel` | the input has a watermark: by a bound (`bounded`) or a generator (`observed`); see `WatermarkAssigner` |
| `faults` | a fault is armed |

If the handler may suspend, the loop is a coroutine and is parked with it: awaiting a coroutine that does not suspend
takes 0.10 µs; sending into it takes 0.25 µs, since that raises StopIteration.

Variants are cached. Tracebacks show their lines, and this prints some of them:

    python -m tidegate.engine.processing.operators.record_loop
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice
from time import perf_counter
from typing import Any, Final, NamedTuple

from tidegate.engine.processing.coroutine_driver import FAILURES
from tidegate.engine.processing.input import Chunk
from tidegate.engine.processing.operators.operator import Pause
from tidegate.errors import DataError, MissingKeyError
from tidegate.faults import fault_point
from tidegate.functions.declaration.handler_call import check_result
from tidegate.state.handles import InlineValue
from tidegate.state.overlay import ABSENT

__all__ = ("Shape", "Stretch", "compiled_loop", "loop_source")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The properties that select a variant of the loop; see the module."""

    states: int = 0
    """The number of state parameters of the handler."""
    handles: int = 0
    """The number of state handles whose `seen` is reset before each record."""
    awaits: bool = False
    single: bool = False
    inline: bool = False
    mutable: bool = False
    timers: bool = False
    extracted: bool = False
    bounded: bool = False
    observed: bool = False
    faults: bool = False

    @property
    def features(self) -> frozenset[str]:
        named = {field.name for field in fields(self) if getattr(self, field.name) is True}
        return frozenset({*named, "channel"} if self.bounded or self.observed else named)


class Stretch(NamedTuple):
    """Consecutive records of a chunk that one call of the loop handles."""

    chunk: Chunk
    rows: Iterator[tuple[Any, Any, int, Any]]
    """Per record: key, encoded value, timestamp, and the entry of its state if it is in memory."""
    decode: Callable[[Any], Any]
    """Decodes a value; if the stretch has tombstones, it accepts them, too."""
    end: int
    """The index in the chunk after the last record."""
    stride: int
    """The number of records between two readings of the clock."""
    deadline: float
    watch: bool
    """Whether the watermark is advanced, and due work is checked, after each record."""
    end_watermark: int
    """The watermark after the last record, if it is not advanced record by record."""


# `loop` is a RecordLoop: everything that is constant for one handler, input and context. Uncommon cases are methods of
# its operator.
_TEMPLATE: Final = """
async def handle_records(loop, stretch):                                            #? awaits
def handle_records(loop, stretch):                                                  #? not awaits
    context, journal, call, states = loop.context, loop.journal, loop.call, loop.states
    name, topic, operator = loop.name, loop.topic, loop.operator
    busy, run_queue = loop.busy, loop.run_queue
    undo, timers_set = journal.undo, context.timers_set
    only, cells = context.only_state                                                #? single
    inline_value, exact, dirty, interval = context.inline_value, only.exact, cells.dirty, cells.commit_count  #? inline
    @STATES
    @HANDLES
    extract = loop.assigner.extract                                                 #? extracted
    channel, advance = loop.channel, loop.advance                                   #? channel
    lead = loop.assigner.lead                                                       #? bounded
    watermark = loop.assigner.watermark                                             #? observed
    chunk, rows, decode, end = stretch.chunk, stretch.rows, stretch.decode, stretch.end
    end_watermark, watch = stretch.end_watermark, stretch.watch
    while chunk.index < end:
        for key, raw, timestamp, entry in islice(rows, stretch.stride):
            try:
                value = decode(raw)
                timestamp = extract(value, timestamp)                               #? extracted
                if key is None:
                    raise MissingKeyError(topic)
                new_watermark = chunk.watermark = watermark(timestamp, value)       #? observed
            except Exception as error:
                operator.unreadable(context, chunk, error)
                watch = True
                continue
            if busy and key in busy:
                operator.queue(chunk, key, timestamp, value)
            else:
                context.first_output = None
                journal.key, journal.timestamp = key, timestamp
                only.seen = entry                                                   #? single
                if entry is not None and (before := entry.value) is not ABSENT:     #? inline
                    state0, inline_value.value = inline_value, before               #? inline
                else:                                                               #? inline
                    state0, inline_value.value = only, ABSENT                       #? inline
                @RESET
                fault_point("handler.before")                                       #? faults
                try:
                    await call(context, value@ARGUMENTS)                            #? awaits
                    if (result := call(context, value@ARGUMENTS)) is not None:      #? not awaits
                        check_result(result, name)                                  #? not awaits
                except FAILURES as error:
                    operator.failed(context, chunk, key, timestamp, value, error)
                    watch = True
                else:
                    if context.private is not None:                                 #? awaits
                        return Pause.SUSPENDED  # and has finished: `_unpark` settles it  #? awaits
                    try:
                        if state0 is inline_value:                                  #? inline
                            if undo and type(inline_value) is not InlineValue:      #? inline
                                inline_value.activate()  # the handler has cleared it  #? inline
                            elif (after := inline_value.value) is not before:       #? inline
                                if type(after) is exact:                            #? inline
                                    entry.value = after                             #? inline
                                    if entry.changed != interval:                   #? inline
                                        entry.changed = interval                    #? inline
                                        dirty.append(entry)                         #? inline
                                else:                                               #? inline
                                    only.put(after)                                 #? inline
                        journal.settle()                                            #? mutable
                        if undo:                                                    #? not mutable
                            undo.clear()                                            #? not mutable
                        if timers_set:                                              #? timers
                            watch = operator.set_timers(timers_set, end_watermark) or watch  #? timers
                    except DataError as error:
                        operator.failed(context, chunk, key, timestamp, value, error)
                        watch = True
                fault_point("handler.after")                                        #? faults
            if watch and (new_watermark := timestamp - lead) > channel.watermark:   #? bounded
            if watch and new_watermark > channel.watermark:                         #? observed
                advance(new_watermark)                                              #? channel
            if watch and run_queue.has_work:
                return Pause.CONTINUE
        if perf_counter() >= stretch.deadline:
            return Pause.TIME_UP
    return None
"""


_MARK: Final = "#?"
_NAMES: Final[dict[str, Any]] = {
    "ABSENT": ABSENT, "DataError": DataError, "FAILURES": FAILURES, "InlineValue": InlineValue,
    "MissingKeyError": MissingKeyError, "Pause": Pause, "check_result": check_result, "fault_point": fault_point,
    "islice": islice, "perf_counter": perf_counter,
}  # fmt: skip
"""The global names of the template."""


def loop_source(shape: Shape) -> str:
    """The variant of a shape."""
    return "".join(f"{_filled(text, shape)}\n" for text in _lines(shape) if _filled(text, shape).strip())


def _lines(shape: Shape) -> Iterator[str]:
    """The lines of the template for the features of this shape, without their marks."""
    features = shape.features
    for line in _TEMPLATE.splitlines():
        text, _, wanted = line.partition(_MARK)
        feature = wanted.strip()
        if feature.startswith("not "):
            wants = feature.removeprefix("not ") not in features
        else:
            wants = not feature or feature in features
        if wants:
            yield text.rstrip()


def _filled(text: str, shape: Shape) -> str:
    """A line with its @PLACEHOLDERS replaced."""
    states = [f"state{number}" for number in range(shape.states)]
    handles = [f"handle{number}" for number in range(shape.handles)]
    return (
        text.replace("@STATES", f"{', '.join(states)}, = states" if states else "")
        .replace("@HANDLES", f"{', '.join(handles)}, = context.leaf_handles" if handles else "")
        .replace("@ARGUMENTS", "".join(f", {state}" for state in states))
        .replace("@RESET", " = ".join([*(f"{handle}.seen" for handle in handles), "None"]) if handles else "")
    )


@cache
def compiled_loop(shape: Shape) -> Callable[[Any, Stretch], Any]:
    """The variant of a shape, as a function of a `RecordLoop` and a `Stretch`."""
    source = loop_source(shape)
    about = ", ".join([*sorted(shape.features), f"{shape.states} states", f"{shape.handles} handles"])
    filename = f"<record loop: {about}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names = dict(_NAMES)
    exec(compile(source, filename, "exec"), names)  # noqa: S102  the source is the template above
    loop: Callable[[Any, Stretch], Any] = names["handle_records"]
    return loop


if __name__ == "__main__":
    for title, shape in {
        "a stateless handler": Shape(bounded=True),
        "a handler with one ValueState": Shape(states=1, single=True, inline=True, bounded=True),
        "an async handler with two states, by event time": Shape(
            states=2, handles=2, awaits=True, mutable=True, timers=True, extracted=True, bounded=True
        ),
    }.items():
        sys.stdout.write(f"# {title}\n{loop_source(shape)}\n")

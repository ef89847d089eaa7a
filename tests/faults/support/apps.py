"""Small apps whose results can be computed by hand. `oracle` computes the expected results of each.

ledger     every kind of state; records may wait, and may fail
eager      the same, with outputs that leave at once
threaded   the same, with handlers that block, in threads
tallies    state that adds up, of keys and of whole tasks
hoard      large state, so that it takes a while to restore
fading     state that is forgotten after a time
alarms     one timer for each record, by event time or by the clock
sessions   timers that move: what a partition does depends on when each fires
shuffled   records re-keyed by a field
combined   the same, and combined before they are sent
chained    a service behind another, which goes by the time of the first
idling     the same, and partitions that are silent do not hold time back for long
cycle      two services in a circle
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from tidegate import (
    DEAD_LETTER,
    SKIP,
    STOP,
    TTL,
    Aggregate,
    AggregateFunction,
    AggregatingState,
    App,
    Context,
    Default,
    ErrorPolicy,
    EventTime,
    ListState,
    MapState,
    Monotonic,
    OperatorState,
    Reduce,
    ReducingState,
    Timer,
    ValueState,
    retry,
)
from tidegate.codecs import codec_for
from tidegate.functions.definition import Guarantee
from tidegate.functions.shuffle_steps import ShuffleSteps
from tidegate.host.app_definition import AppDefinition
from tidegate.time.watermarks import BoundedOutOfOrderness

__all__ = (
    "FADES",
    "GAP",
    "KEPT",
    "LEAD",
    "PARTITIONS",
    "RETRIES",
    "Alarm",
    "Balance",
    "Entry",
    "Hop",
    "Posting",
    "Session",
    "Tally",
    "acknowledge",
    "alarms",
    "bulk",
    "chained",
    "combined",
    "cycle",
    "dead_letters",
    "eager",
    "fading",
    "hoard",
    "hurried",
    "idling",
    "ledger",
    "note",
    "retrying",
    "sessions",
    "shuffled",
    "shuffled_letters",
    "skipping",
    "stopping",
    "tallies",
    "threaded",
)

PARTITIONS = 2
KEPT = 5
"""How many items the ledger's list holds."""
LEAD = 1000
"""How long after a record its alarm is due, in ms."""
GAP = 500
"""A session ends so long after its last record, in ms."""
FADES = 120
"""So long after its last record a key is forgotten, in ms of event time."""
RETRIES = 3


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of all apps."""

    id: int
    key: str
    amount: int
    at: int
    wait: float = 0.0
    """How long its handler waits, in seconds."""
    fails: int = 0
    """How many times its handler fails in one process before it succeeds."""
    owner: str = ""
    """Another key, for re-keyed services."""
    size: int = 0
    """How many bytes its result carries besides."""


class Balance(msgspec.Struct, frozen=True):
    count: int
    total: int


class Posting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one entry."""

    id: int
    key: str
    count: int
    total: int
    late: bool = False
    padding: str = ""


class Alarm(msgspec.Struct, frozen=True):
    id: str
    key: str
    number: int
    """How many have gone off for this key, this one included."""


class Tally(msgspec.Struct, frozen=True):
    id: int
    key: str
    highest: int
    mean: float


class Session(msgspec.Struct, frozen=True):
    key: str
    entries: tuple[int, ...]
    closed: int


class Hop(msgspec.Struct, frozen=True):
    id: int
    key: str
    left: int
    """How many times it still goes round."""


def note(text: str) -> None:
    """Note for the test what a handler does; no transaction rolls the note back."""
    _write("TIDEGATE_TEST_NOTES", text)


def acknowledge(text: str) -> None:
    """Note for the test which sends are durable."""
    _write("TIDEGATE_TEST_ACKNOWLEDGED", text)


def _write(variable: str, text: str) -> None:
    path = os.environ.get(variable)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)


def toil() -> None:
    """Take some time, like handlers that compute, so that a short run has more than a commit or two."""
    time.sleep(float(os.environ.get("TIDEGATE_TEST_TOIL", "0")))


# -- the ledger -----------------------------------------------------------------------------------------------------


Last = Annotated[ValueState[list[int]], Default(factory=list)]


def _ledger(
    name: str,
    errors: ErrorPolicy = STOP,
    timeout: float | None = None,
    guarantee: Guarantee = "exactly_once",
    threads: int | None = None,
) -> App:
    app = App(name, time=EventTime("at"), partitions=PARTITIONS)
    entries = app.topic("entries", value_type=Entry, key="key")
    postings = app.topic("postings", value_type=Posting, key="key")
    failed: dict[int, int] = {}

    def fail_if_told(entry: Entry) -> None:
        if failed.get(entry.id, 0) < entry.fails and not os.environ.get("TIDEGATE_TEST_MENDED"):
            failed[entry.id] = failed.get(entry.id, 0) + 1
            raise RuntimeError(f"entry {entry.id} is told to fail")

    def begin(
        ctx: Context, entry: Entry, balance: ValueState[Balance | None], last: Last, history: ListState[int]
    ) -> bool:
        """Whether the handler is to wait then."""
        note(f"{entry.id}")
        toil()
        known = balance.value or Balance(0, 0)
        balance.value = Balance(known.count + 1, known.total + entry.amount)
        last.value = [*last.value, -entry.id]
        history.append(entry.id)
        ctx.emit(Posting(entry.id, ctx.key, known.count + 1, known.total + entry.amount, padding="x" * entry.size))
        return entry.wait > 0 and not os.environ.get("TIDEGATE_TEST_HURRY")

    def end(entry: Entry, last: Last, by_amount: MapState[int, int], history: ListState[int]) -> None:
        fail_if_told(entry)
        last.value = [*last.value[-KEPT:-1], entry.id]
        last.value[-1] += 1
        by_amount[entry.amount] = by_amount.get(entry.amount, 0) + 1
        if len(history) > KEPT:
            history.popleft()

    async def post(
        ctx: Context,
        entry: Entry,
        balance: ValueState[Balance | None],
        last: Last,
        by_amount: MapState[int, int],
        history: ListState[int],
    ) -> None:
        """Reads and writes before and after it waits, by assignment and in place."""
        if begin(ctx, entry, balance, last, history):
            await asyncio.sleep(entry.wait)
        end(entry, last, by_amount, history)

    def post_in_thread(
        ctx: Context,
        entry: Entry,
        balance: ValueState[Balance | None],
        last: Last,
        by_amount: MapState[int, int],
        history: ListState[int],
    ) -> None:
        """The same, blocking."""
        if begin(ctx, entry, balance, last, history):
            time.sleep(entry.wait)
        end(entry, last, by_amount, history)

    service = app.process(
        entries, to=postings, name="ledger", errors=errors, timeout=timeout, guarantee=guarantee, threads=threads
    )
    if threads is None:
        service(post)
    else:
        service(post_in_thread)
    return app


ledger = stopping = _ledger("ledger")
eager = _ledger("eager", guarantee="at_least_once")
skipping = _ledger("skipping", SKIP)
dead_letters = _ledger("letters", DEAD_LETTER)
hurried = _ledger("hurried", SKIP, timeout=0.1)
retrying = _ledger("retrying", retry(RETRIES, 0.01, then=DEAD_LETTER))
threaded = _ledger("threaded", threads=4)


# -- other state ----------------------------------------------------------------------------------------------------


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create(self) -> tuple[int, int]:
        return 0, 0

    def add(self, accumulator: tuple[int, int], item: int) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + item

    def result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]


tallies = App("tallies", time=EventTime("at"), partitions=PARTITIONS)
_counted = tallies.topic("entries", value_type=Entry, key="key")
_tallied = tallies.topic("tallied", value_type=Tally, key="key")


@tallies.process(_counted, to=_tallied, name="tallies")
async def _tally(
    ctx: Context,
    entry: Entry,
    highest: Annotated[ReducingState[int], Reduce(max)],
    mean: Annotated[AggregatingState[int, float], Aggregate(Mean())],
    handled: OperatorState[int],
) -> None:
    toil()
    highest.add(entry.id)
    handled.append(entry.id)
    if entry.wait:
        await asyncio.sleep(entry.wait)
    mean.add(entry.amount)
    ctx.emit(Tally(entry.id, ctx.key, highest.value or 0, mean.value or 0.0))


fading = App("fading", time=EventTime("at"), partitions=PARTITIONS, watermark=BoundedOutOfOrderness(by=GAP / 5 / 1000))
_remembered = fading.topic("entries", value_type=Entry, key="key")
_recalled = fading.topic("postings", value_type=Posting, key="key")


@fading.process(_remembered, to=_recalled, name="memory")
async def _recall(
    ctx: Context, entry: Entry, count: Annotated[ValueState[int], Default(0), TTL(milliseconds=FADES, time="event")]
) -> None:
    """The count restarts after a time without records."""
    toil()
    count.value += 1
    ctx.emit(Posting(entry.id, ctx.key, count.value, 0))


hoard = App("hoard", time=EventTime("at"), partitions=PARTITIONS)
_brought = hoard.topic("entries", value_type=Entry, key="key")
_stored = hoard.topic("postings", value_type=Posting, key="key")


@hoard.process(_brought, to=_stored, name="hoard")
async def _store(ctx: Context, entry: Entry, kept: Annotated[ValueState[str], Default("")]) -> None:
    toil()
    kept.value = bulk(entry)
    ctx.emit(Posting(entry.id, ctx.key, 1, 0))


def bulk(entry: Entry) -> str:
    """Text of the entry's size that does not compress well."""
    return random.Random(entry.id).randbytes(entry.size // 2).hex()


# -- timers ---------------------------------------------------------------------------------------------------------

alarms = App("alarms", time=EventTime("at"), partitions=PARTITIONS)
_wakes = alarms.topic("entries", value_type=Entry, key="key")
_rung = alarms.topic("rung", value_type=Alarm, key="key")


@alarms.process(_wakes, to=_rung, name="clock")
async def _clock(ctx: Context, entry: Entry, fired: Annotated[ValueState[int], Default(0)]) -> None:
    """Even ones by event time, odd ones by the clock."""
    toil()
    if entry.wait and not os.environ.get("TIDEGATE_TEST_HURRY"):
        await asyncio.sleep(entry.wait)
    note(f"handled {entry.id}")
    name = f"{entry.id}/{entry.wait}"
    if entry.id % 2 == 0:
        ctx.timers.at(entry.at + LEAD, name=name)
    else:
        ctx.timers.after(0.02, name=name, time="processing")


@_clock.on_timer()
async def _ring(ctx: Context, timer: Timer, fired: Annotated[ValueState[int], Default(0)]) -> None:
    number, _, wait = timer.name.partition("/")
    if float(wait) and not os.environ.get("TIDEGATE_TEST_HURRY"):
        await asyncio.sleep(float(wait))
    note(f"fired {number}")
    fired.value += 1
    ctx.emit(Alarm(number, ctx.key, fired.value))


sessions = App(
    "sessions", time=EventTime("at"), partitions=PARTITIONS, watermark=BoundedOutOfOrderness(by=GAP / 5 / 1000)
)
_visits = sessions.topic("entries", value_type=Entry, key="key")
_closed = sessions.topic("closed", value_type=Session, key="key")


@sessions.process(_visits, to=_closed, name="visits")
async def _visit(ctx: Context, entry: Entry, seen: Annotated[ValueState[tuple[int, ...]], Default(())]) -> None:
    toil()
    seen.value = (*seen.value, -entry.id if ctx.late else entry.id)
    ctx.timers.at(entry.at + GAP, name="end")


@_visit.on_timer("end")
async def _end(ctx: Context, seen: Annotated[ValueState[tuple[int, ...]], Default(())]) -> None:
    ctx.emit(Session(ctx.key, seen.value, ctx.timestamp))
    seen.clear()


# -- services behind services ---------------------------------------------------------------------------------------


def _shuffled(name: str, errors: ErrorPolicy = STOP) -> App:
    app = App(name, time=EventTime("at"), partitions=PARTITIONS)
    mixed = app.topic("entries", value_type=Entry, key="key")
    owned = app.topic("postings", value_type=Posting, key="key")

    @app.process(mixed, to=owned, key_by="owner", name="owners", errors=errors)
    async def own(ctx: Context, entry: Entry, balance: ValueState[Balance | None]) -> None:
        known = balance.value or Balance(0, 0)
        balance.value = Balance(known.count + 1, known.total + entry.amount)
        ctx.emit(Posting(entry.id, ctx.key, balance.value.count, balance.value.total))
        if entry.fails:
            raise RuntimeError(f"entry {entry.id} is told to fail")

    return app


class _Combining(App):
    """Its service has what it reads filtered and combined before the shuffle."""

    def define(self) -> AppDefinition:
        definition = super().define()
        (service,) = definition.services
        steps = ShuffleSteps(
            filter=lambda entry: entry.amount % 5 != 0, project=_as_balance, combine=_add, codec=codec_for(Balance)
        )
        return replace(definition, services=(replace(service, inputs=(replace(service.inputs[0], shuffle=steps),)),))


def _as_balance(entry: Entry) -> Balance:
    toil()
    return Balance(1, entry.amount)


def _add(one: Balance, other: Balance) -> Balance:
    return Balance(one.count + other.count, one.total + other.total)


combined = _Combining("combined", time=EventTime("at"), partitions=PARTITIONS)
_combined = combined.topic("entries", value_type=Entry, key="key")
_balances = combined.topic("postings", value_type=Posting, key="key")


@combined.process(_combined, to=_balances, key_by="owner", name="owners")
async def _sum_up(ctx: Context, part: Any, balance: ValueState[Balance | None]) -> None:
    known = balance.value or Balance(0, 0)
    balance.value = Balance(known.count + part.count, known.total + part.total)
    ctx.emit(Posting(part.count, ctx.key, balance.value.count, balance.value.total))


shuffled = _shuffled("shuffled")
shuffled_letters = _shuffled("shuffled-letters", DEAD_LETTER)


def _chained(name: str, watermark: Monotonic) -> App:
    app = App(name, time=EventTime("at"), watermark=watermark, partitions=PARTITIONS, progress_interval=0.01)
    first = app.topic("entries", value_type=Entry, key="key")
    between = app.topic("between", value_type=Entry, key="owner")
    last = app.topic("rung", value_type=Alarm, key="key")
    seen = app.topic("postings", value_type=Posting, key="key")

    @app.process(first, to=between, name="first")
    async def pass_on(ctx: Context, entry: Entry, balance: ValueState[Balance | None]) -> None:
        known = balance.value or Balance(0, 0)
        balance.value = Balance(known.count + 1, known.total + entry.amount)
        ctx.emit(entry)

    @app.process(between, to=[last, seen], name="second")
    async def wait_for_time(ctx: Context, entry: Entry, fired: Annotated[ValueState[int], Default(0)]) -> None:
        """Entries come in order of their time, so none is late, unless time ran ahead of them."""
        toil()
        ctx.emit(Posting(entry.id, ctx.key, 0, entry.amount, late=ctx.late), to=seen)
        ctx.timers.at(entry.at + LEAD, name=str(entry.id))

    @wait_for_time.on_timer()
    async def time_has_come(ctx: Context, timer: Timer, fired: Annotated[ValueState[int], Default(0)]) -> None:
        note(f"fired {timer.name}")
        fired.value += 1
        ctx.emit(Alarm(timer.name, ctx.key, fired.value))

    return app


chained = _chained("chained", Monotonic())
idling = _chained("idling", Monotonic(idle_after=0.5))


cycle = App("cycle", time=EventTime("at"), partitions=PARTITIONS)
_entering = cycle.topic("entries", value_type=Entry, key="key")
_round = cycle.topic("round", value_type=Hop, key="key", time=EventTime())
_back = cycle.topic("back", value_type=Hop, key="key", time=EventTime())
_arrived = cycle.topic("postings", value_type=Posting, key="key")


@cycle.process(_entering, _back, to=[_arrived, _round], name="out")
async def _out(ctx: Context, thing: Entry | Hop, visits: Annotated[ValueState[int], Default(0)]) -> None:
    visits.value += 1
    left = thing.left if isinstance(thing, Hop) else thing.amount
    if left:
        ctx.emit(Hop(thing.id, thing.key, left - 1), to=_round)
    else:
        ctx.emit(Posting(thing.id, thing.key, 0, 0))


@cycle.process(_round, to=_back, name="home")
async def _home(ctx: Context, hop: Hop, visits: Annotated[ValueState[int], Default(0)]) -> None:
    visits.value += 1
    ctx.emit(hop)

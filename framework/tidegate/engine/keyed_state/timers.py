"""Timers: per key and name, kept as state, found by time.

The *index* (key, name → domain, time) is the truth: it is state like any other, in cells, changelog and checkpoints.
The *queue* (time, key, name) finds what is due; it lives in the local store only, derived from the index, so that
pending timers cost neither memory nor start-up time. A queue entry that the index does not confirm is stale and means
nothing.

Timers that no store has yet are in two heaps, like the overlays: `active` since the last freeze, `committing` since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Final

from tidegate.codecs import Codec
from tidegate.errors import UnknownTimerError, UsageError
from tidegate.functions.context import TimeDomain, Timer, Timers
from tidegate.state.base import Change, Store
from tidegate.state.cells import MapCells
from tidegate.state.handles import Move
from tidegate.state.layout import (
    EVENT,
    PROCESSING,
    pack_due,
    parse_queue,
    parse_timer,
    queue_key,
    queue_range,
    unpack_due,
)
from tidegate.state.overlay import ABSENT, Entry, Journal, Place
from tidegate.time.clock import MAX_TIME, MIN_TIME, Clock, Duration, Instant, to_duration, to_instant

__all__ = ("DOMAINS", "Due", "TimerCells", "TimerQueue", "TimersHandle", "queue_changes")

DOMAINS: Final[dict[TimeDomain, int]] = {"event": EVENT, "processing": PROCESSING}
_NAMES: Final[dict[int, TimeDomain]] = {EVENT: "event", PROCESSING: "processing"}

Due = tuple[int, bytes, str]
"""A time, a key and a timer's name: what a queue holds, in this order."""

_codec: Final[Codec[tuple[int, int]]] = Codec(
    type=tuple[int, int],
    encode=lambda due: pack_due(*due),
    decode=unpack_due,
    check=lambda _: True,
    immutable=True,
    encode_raw=lambda due: pack_due(*due),
    decode_raw=unpack_due,
)


def queue_changes(index_key: bytes, before: bytes | None, after: bytes | None) -> Iterator[Change]:
    """What becomes of the queue when an index entry changes."""
    entry = parse_timer(index_key)
    if before is not None:
        yield queue_key(*unpack_due(before), entry.key, entry.name), None
    if after is not None:
        yield queue_key(*unpack_due(after), entry.key, entry.name), b""


class TimerCells(MapCells):
    """The index."""

    def __init__(self, store: Store, base: Place) -> None:
        super().__init__(store, _codec, base)

    def freeze_queue(self, local: list[Change]) -> None:
        """The changes of the queue that go with those of the index. Call before `freeze`: the store then still holds
        what the index said at the last commit."""
        for entry in self.dirty:
            name = entry.sub.decode()
            stored = self.store.get(entry.store_key)
            if stored is not None:
                domain, at = unpack_due(stored)
                local.append((queue_key(domain, at, entry.key, name), None))
            if entry.value is not ABSENT:
                domain, at = entry.value
                local.append((queue_key(domain, at, entry.key, name), b""))


class TimerQueue:
    """What is due in one domain: the store's queue and the two heaps, in the order of time."""

    def __init__(self, store: Store, domain: int) -> None:
        self._store, self._domain = store, domain
        self._active: list[Due] = []
        self._committing: list[Due] = []
        self._scan: Iterator[Due] | None = None
        self._head: Due | None = None
        self._stored_from = MIN_TIME
        """The store holds no timer before this time."""
        self._rescan()

    @property
    def due(self) -> int:
        """No timer is due before this time."""
        heads = [heap[0][0] for heap in (self._active, self._committing) if heap]
        return min(self._stored_from, *heads) if heads else self._stored_from

    def push(self, due: Due) -> None:
        heappush(self._active, due)

    def pop(self, upto: int) -> Due | None:
        """The earliest entry that is due at `upto`. It may be stale, or come twice: ask the index."""
        heap = min((heap for heap in (self._active, self._committing) if heap), key=itemgetter(0), default=None)
        if self._stored_from <= upto and self._scan is None:
            self._rescan()
        head = self._head
        if head is not None and head[0] <= upto and (heap is None or head <= heap[0]):
            self._step()
            return head
        return heappop(heap) if heap is not None and heap[0][0] <= upto else None

    def freeze(self) -> None:
        self._committing, self._active = self._active, []

    def applied(self) -> None:
        """The store has what was committing: the scan must see it."""
        if self._committing:
            self._stored_from = min(self._stored_from, self._committing[0][0])
            self._committing = []
        self._scan = self._head = None

    def _rescan(self) -> None:
        # From the first time that may be there: the tombstones of timers that have fired lie before it.
        start = queue_key(self._domain, self._stored_from, b"", "")[:10]
        end = queue_range(self._domain, MAX_TIME)[1]
        self._scan = ((due.time, due.key, due.name) for due in map(parse_queue, self._keys(start, end)))
        self._step()

    def _keys(self, start: bytes, end: bytes) -> Iterator[bytes]:
        return (key for key, _ in self._store.scan(start, end))

    def _step(self) -> None:
        self._head = next(self._scan, None) if self._scan is not None else None
        self._stored_from = self._head[0] if self._head is not None else MAX_TIME + 1


class TimersHandle(Timers):
    """The timers of the key that is being handled."""

    def __init__(
        self,
        service: str,
        handles: Callable[[str], bool],
        cells: TimerCells,
        journal: Journal,
        clock: Clock,
        *,
        timeless: bool = False,
    ) -> None:
        """`timeless`: the service has no event time."""
        self._timeless = timeless
        self._service, self._handles, self._journal, self._clock = service, handles, journal, clock
        self._cells: Any = cells
        self.set: list[Entry] = []
        """What the handler has set; always the same list. The engine queues it when the handler finishes."""

    def move_to(self, move: Move) -> None:
        self._cells = move(self._cells)

    def at(self, when: Instant, *, name: str, time: TimeDomain = "event") -> None:
        if not self._handles(name):
            raise UnknownTimerError(self._service, name)
        if self._timeless and time == "event":
            raise UsageError(
                f"service {self._service!r} has no event time: it reads no topic, and messages carry none. Set the "
                f"timer {name!r} by the clock: time='processing'."
            )
        domain = DOMAINS.get(time)
        if domain is None:
            raise UsageError(f"the timer {name!r} goes by event time or by the clock: time='event' or 'processing'")
        now = self._journal.timestamp if domain == EVENT else self._clock.now()
        instant = to_instant(when, now=now)
        entry = self._entry(name)
        self._cells.assign(entry, (domain, instant), self._journal)
        self.set.append(entry)

    def after(self, span: Duration, *, name: str, time: TimeDomain = "event") -> None:
        start = self._journal.timestamp if time == "event" else self._clock.now()
        self.at(start + to_duration(span), name=name, time=time)

    def cancel(self, name: str) -> bool:
        entry = self._entry(name)
        if entry.value is ABSENT:
            return False
        self._cells.assign(entry, ABSENT, self._journal)
        return True

    def get(self, name: str) -> Timer | None:
        return self._timer(self._cells.entry(self._journal.key, name.encode()))

    def __iter__(self) -> Iterator[Timer]:
        for sub, _ in self._cells.subkeys(self._journal.key):
            timer = self._timer(self._cells.entry(self._journal.key, sub))
            if timer is not None:
                yield timer

    def _entry(self, name: str) -> Entry:
        entry: Entry = self._cells.entry(self._journal.key, name.encode())
        return entry

    def _timer(self, entry: Entry) -> Timer | None:
        if entry.value is ABSENT:
            return None
        domain, at = entry.value
        return Timer(name=entry.sub.decode(), at=at, time=_NAMES[domain])

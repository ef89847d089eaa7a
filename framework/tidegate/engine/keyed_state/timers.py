"""Timers: stored as state by key and name, and found by time.

The *index* (key, name → domain, time) is authoritative. It is ordinary state: in cells, changelog and checkpoints. The
*queue* (time, key, name) finds due timers. It is derived from the index and exists only in the local store, so that
pending timers need neither memory nor time at start-up. A queue entry that does not match the index is stale, and is
ignored.

Timers that are not in the store yet are in two heaps: `committing` has those of the last freeze, `active` newer ones.
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
"""An entry of a queue: time, key, and name of the timer."""

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
    """The changes of the queue that follow from a change of the index."""
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
        """Adds the changes of the queue that follow from those of the index. Called before `freeze`, while the store
        still has the index of the last commit."""
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
    """The timers of one domain in the order of their time: the store's queue, merged with the two heaps."""

    def __init__(self, store: Store, domain: int) -> None:
        self._store, self._domain = store, domain
        self._active: list[Due] = []
        self._committing: list[Due] = []
        self._scan: Iterator[Due] | None = None
        self._head: Due | None = None
        self._stored_from = MIN_TIME
        """The store has no timer before this time."""
        self._rescan()

    @property
    def due(self) -> int:
        """No timer is due before this time."""
        heads = [heap[0][0] for heap in (self._active, self._committing) if heap]
        return min(self._stored_from, *heads) if heads else self._stored_from

    def push(self, due: Due) -> None:
        heappush(self._active, due)

    def pop(self, now: int) -> Due | None:
        """The earliest entry that is due at `now`. It may be stale, or returned twice: check the index."""
        heap = min((heap for heap in (self._active, self._committing) if heap), key=itemgetter(0), default=None)
        if self._stored_from <= now and self._scan is None:
            self._rescan()
        head = self._head
        if head is not None and head[0] <= now and (heap is None or head <= heap[0]):
            self._step()
            return head
        return heappop(heap) if heap is not None and heap[0][0] <= now else None

    def freeze(self) -> None:
        self._committing, self._active = self._active, []

    def applied(self) -> None:
        """The store has the `committing` timers: the scan must start again to find them."""
        if self._committing:
            self._stored_from = min(self._stored_from, self._committing[0][0])
            self._committing = []
        self._scan = self._head = None

    def _rescan(self) -> None:
        # Starts at the first possible time, to skip the tombstones of timers that have fired.
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
    """The `ctx.timers` of a handler: the timers of its key."""

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
        """The timers that the handler has set. Always the same list; the engine queues them when the handler ends."""

    def move_to(self, move: Move) -> None:
        self._cells = move(self._cells)

    def at(self, when: Instant, *, name: str, time: TimeDomain = "event") -> None:
        if not self._handles(name):
            raise UnknownTimerError(self._service, name)
        if self._timeless and time == "event":
            raise UsageError(
                f"service {self._service!r} has no event time: it reads no topic, and messages have none. Set the "
                f"timer {name!r} in processing time: time='processing'."
            )
        domain = DOMAINS.get(time)
        if domain is None:
            raise UsageError(f"timer {name!r}: time must be 'event' or 'processing', not {time!r}")
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

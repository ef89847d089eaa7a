"""Views of a service's committed state: its keys, their states and timers, and the progress of each task.

A task's store holds exactly what is committed, so a view needs no lock and never sees a partial commit. Expired entries
are left out, even if they are not removed yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

from tidegate.engine.formats.commit_marker import CommitMarker, decode_marker
from tidegate.errors import UnknownNameError, UsageError
from tidegate.functions.definition import ServiceDefinition
from tidegate.keys import KEY_GROUPS, task_of_group
from tidegate.query.pages import Page, PageEntry, Span, take_page
from tidegate.state.base import Store
from tidegate.state.declaration import StateDeclaration
from tidegate.state.layout import (
    EXPIRY,
    MARKER,
    TIMER,
    escape_key,
    keyed_key,
    keyed_prefix,
    operator_key,
    parse_tail,
)
from tidegate.state.map_keys import map_keys
from tidegate.time.clock import MAX_TIME, MIN_TIME, Clock

__all__ = ("ServiceView", "TaskView", "key_groups")

MAX_PAGE_ENTRIES: Final = 1000


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One task's committed state."""

    number: int
    store: Store
    watermark: int | None = None
    """The running task's watermark; None: use the one of the last commit."""

    @property
    def marker(self) -> CommitMarker | None:
        raw = self.store.get(MARKER)
        return None if raw is None else decode_marker(raw)

    def event_time(self) -> int:
        known = self.watermark
        if known is None:
            marker = self.marker
            known = MIN_TIME if marker is None else marker.watermark
        return known if known < MAX_TIME else MIN_TIME  # after a bounded run, the next run starts without a watermark


class ServiceView:
    """A service's committed state in the local tasks."""

    def __init__(self, definition: ServiceDefinition, tasks: Iterable[TaskView], clock: Clock) -> None:
        self.definition, self._clock = definition, clock
        self._tasks = {task.number: task for task in tasks}

    def declaration(self, state: str) -> StateDeclaration:
        declaration = self.definition.states.get(state)
        if declaration is None:
            raise UnknownNameError("state", state, self.definition.states, of=f"of service {self.definition.name!r}")
        return declaration

    async def entries(
        self,
        state: str,
        *,
        key: bytes | None = None,
        prefix: bytes = b"",
        after: bytes = b"",
        limit: int = MAX_PAGE_ENTRIES,
    ) -> Page:
        """The entries of one key, or of all keys that begin with `prefix`, in key order.

        Most kinds of state have one entry per key; maps and lists have many, in order."""
        declaration = self.declaration(state)
        if declaration.kind == "operator":
            raise UsageError(f"state {state!r} is an operator state: it belongs to tasks and has no keys to query")
        if key is not None and declaration.kind not in ("map", "list"):
            return self._single(declaration, key)
        return await self._page(declaration, keyed_prefix(state), key, prefix, after, limit)

    async def timers(self, key: bytes | None = None, *, after: bytes = b"", limit: int = MAX_PAGE_ENTRIES) -> Page:
        """The timers of one key or of all keys; an entry's subkey is the timer's name, its value the due time."""
        return await self._page(None, TIMER, key, b"", after, limit)

    def items(self, state: str) -> list[tuple[int, bytes | None]]:
        """The stored list of an operator state, per task."""
        if self.declaration(state).kind != "operator":
            raise UsageError(f"state {state!r} is a keyed state, not an operator state")
        return [(number, task.store.get(operator_key(state, 0))) for number, task in sorted(self._tasks.items())]

    # -- parts -------------------------------------------------------------------------------------------------------
    def _single(self, declaration: StateDeclaration, key: bytes) -> Page:
        """A state with one entry per key: a get is cheaper than a scan."""
        task = self._tasks.get(self.definition.task_for(key))
        stored = None if task is None else task.store.get(keyed_key(keyed_prefix(declaration.name), key))
        return Page([] if stored is None else list(self._alive(declaration, [PageEntry(key, b"", stored)])))

    async def _page(
        self,
        declaration: StateDeclaration | None,
        stem: bytes,
        key: bytes | None,
        prefix: bytes,
        after: bytes,
        limit: int,
    ) -> Page:
        spans = self.spans(stem, prefix) if key is None else self._span(stem, key)
        taken, cursor = await take_page(spans, after=after, limit=max(1, min(limit, MAX_PAGE_ENTRIES)))
        entries = [PageEntry(*parse_tail(tail), value) for tail, value in taken]
        if declaration is not None and declaration.kind == "map":
            plain = map_keys(declaration.key_type).plain
            entries = [PageEntry(entry.key, plain(entry.sub), entry.value) for entry in entries]
        return Page(entries if declaration is None else list(self._alive(declaration, entries)), cursor)

    def _span(self, stem: bytes, key: bytes) -> Iterator[Span]:
        task = self._tasks.get(self.definition.task_for(key))
        if task is not None:
            store_key = keyed_key(stem, key)
            yield Span(task.store, store_key[: len(stem) + 1], store_key[len(stem) + 1 :])

    def spans(self, stem: bytes, prefix: bytes, low: bytes = b"", high: bytes = b"") -> Iterator[Span]:
        """The ranges with the entries of keys that begin with `prefix`; `low` and `high` bound the tails."""
        begin = escape_key(prefix)
        for number, task in sorted(self._tasks.items()):
            for group in key_groups(self.definition, number):
                yield Span(task.store, stem + bytes((group,)), begin, low, high)

    def task_of(self, key: bytes) -> TaskView:
        """The local task that owns the key."""
        return self._tasks[self.definition.task_for(key)]

    def _alive(self, declaration: StateDeclaration, entries: Sequence[PageEntry]) -> Iterator[PageEntry]:
        ttl = declaration.ttl
        if ttl is None:
            yield from entries
            return
        now = self._clock.now()
        times = {number: now if ttl.time == "processing" else t.event_time() for number, t in self._tasks.items()}
        task_of = self.definition.task_for
        for entry in entries:
            (expires,) = EXPIRY.unpack_from(entry.value)
            if expires > times[task_of(entry.key)]:
                yield PageEntry(entry.key, entry.sub, entry.value[EXPIRY.size :])


def key_groups(definition: ServiceDefinition, number: int) -> list[int]:
    """The key groups that contain a task's keys."""
    topic = definition.placement
    if topic.internal:
        return [group for group in range(KEY_GROUPS) if task_of_group(group, topic.partitions) == number]
    step = gcd(topic.partitions, KEY_GROUPS)  # partition and key group are remainders of the same hash
    return list(range(number % step, KEY_GROUPS, step))

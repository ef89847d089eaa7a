"""Change feeds: the committed changes of a state, for subscribers to a key, a prefix or all keys.

A slow subscriber does not delay commits. Each feed has a bounded buffer; when it overflows, the buffer is dropped and
the subscriber gets a gap marker. Until it has read the marker, nothing more is buffered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from tidegate.engine.task import Task
from tidegate.engine.worker.engine import Engine
from tidegate.errors import ValueTooLargeError
from tidegate.query.state_reader import StateReader
from tidegate.serving.position_tokens import Position
from tidegate.serving.tasks import ReadCommit, view_of
from tidegate.state.base import Change
from tidegate.state.layout import keyed_key, parse_keyed

__all__ = ("ChangeFeed", "KeyChange", "RenderCache", "wait_for_changes")

_BUFFERED_CHANGES: Final = 1000
"""The capacity of a feed's buffer."""


async def wait_for_changes(news: asyncio.Event, patience: float) -> None:
    """Wait at most `patience` seconds. Clear the event before reading the feeds, so that no later change is missed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await news.wait()


class KeyChange(NamedTuple):
    key: bytes
    value: bytes | None
    """The complete new value, as JSON; None: it was deleted, or the state is a map."""
    entries: bytes | None
    """The changed entries of a map, as JSON: null for a deleted entry."""
    position: Position
    large: bool = False
    """The value exceeds the size limit of a response and is left out."""


class RenderCache:
    """Changes of the current commit, shared by all feeds, so that a value is encoded as JSON once per commit."""

    def __init__(self) -> None:
        self._position: Position | None = None
        self._known: dict[tuple[StateReader, bytes], KeyChange] = {}

    def of(self, position: Position, reader: StateReader, key: bytes, make: Callable[[], KeyChange]) -> KeyChange:
        if position != self._position:
            self._position, self._known = position, {}
        found = self._known.get((reader, key))
        if found is None:
            found = self._known[reader, key] = make()
        return found


class ChangeFeed:
    """A context manager that is subscribed while it is open. Iterating waits for changes; None is the gap marker."""

    def __init__(
        self,
        engine: Engine,
        reader: StateReader,
        tasks: Collection[str],
        now: Callable[[], int],
        rendered: RenderCache,
        *,
        key: bytes | None = None,
        prefix: bytes = b"",
        max_bytes: int,
        news: asyncio.Event | None = None,
    ) -> None:
        """`news`: set when a change arrives; feeds that one reader waits for share one event."""
        self._engine, self._reader, self._now, self._most = engine, reader, now, max_bytes
        self._rendered = rendered
        self._tasks = tasks
        self._key, self._prefix = key, prefix
        self._stem = reader.prefix if key is None else keyed_key(reader.prefix, key)
        self._buffer: deque[KeyChange] = deque()
        self._missed = False
        self._news = news or asyncio.Event()
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> ChangeFeed:
        self._stop = self._engine.commit_listeners.listen(self._on_commit)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    async def changes(self, *, patience: float) -> AsyncIterator[KeyChange | None]:
        """The buffered changes; waits at most `patience` seconds for the first."""
        if not self._buffer and not self._missed:
            await wait_for_changes(self._news, patience)
        self._news.clear()
        for changed in self.take():
            yield changed

    def take(self) -> Iterator[KeyChange | None]:
        """The buffered changes."""
        while self._buffer:
            yield self._buffer.popleft()
        if self._missed:
            self._missed = False
            yield None

    def _on_commit(self, name: str, changes: Iterable[Change]) -> None:
        if self._missed or name not in self._tasks:
            return
        stem = self._stem
        mine = [change for change in changes if change[0].startswith(stem)]
        task = self._engine.tasks.get(name)
        if not mine or task is None:
            return
        by_key: dict[bytes, list[Change]] = {}
        for change in mine:
            by_key.setdefault(parse_keyed(change[0]).key, []).append(change)
        position = ReadCommit(task, view_of(task)).position
        for key, found in by_key.items():
            if key.startswith(self._prefix) and not self._missed:
                make = partial(self._changed, task, key, found, position)
                self._add(self._rendered.of(position, self._reader, key, make))
        self._news.set()

    def _changed(self, task: Task, key: bytes, found: list[Change], position: Position) -> KeyChange:
        reader, view, now = self._reader, view_of(task), self._now()
        if reader.declaration.kind != "map":
            try:
                return KeyChange(key, reader.value(view, key, now, max_bytes=self._most), None, position)
            except ValueTooLargeError:
                return KeyChange(key, None, None, position, large=True)
        parts = []
        for place, stored in found:
            name = reader.name(parse_keyed(place).subkey)
            parts.append(name + b":" + (reader.of_entry(view, stored, now) or b"null"))
        return KeyChange(key, None, b"{" + b",".join(parts) + b"}", position)

    def _add(self, changed: KeyChange) -> None:
        if len(self._buffer) >= _BUFFERED_CHANGES:
            self._missed = True
            self._buffer.clear()
        else:
            self._buffer.append(changed)

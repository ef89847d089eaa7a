"""Changes of a state, as they are committed, for whoever watches a key, a prefix or all keys.

A watcher that is slow does not hold up commits: it has a buffer, and when that is full it is told that it missed some.
Until it hears of that, nothing more is collected for it.
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
from tidegate.query.state_reader import StateReader, name_of
from tidegate.serving.position_tokens import Position
from tidegate.serving.tasks import Reached, view_of
from tidegate.state.base import Change
from tidegate.state.layout import keyed_key, parse_keyed

__all__ = ("ChangeFeed", "Changed", "Rendered", "wait_for_news")

_MOST: Final = 1000
"""Changes that may wait for a watcher."""


async def wait_for_news(news: asyncio.Event, patience: float) -> None:
    """For so many seconds at most. Clear it before looking for what is new: whatever comes later sets it again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await news.wait()


class Changed(NamedTuple):
    key: bytes
    value: bytes | None
    """The whole new value, as JSON; None: it is gone, or it is a map."""
    entries: bytes | None
    """Of a map, what has changed, as JSON: null for what is gone."""
    position: Position
    large: bool = False
    """The value is too large for an answer, and left out."""


class Rendered:
    """What watchers of the same commit share: however many watch a key, its value becomes JSON once."""

    def __init__(self) -> None:
        self._position: Position | None = None
        self._known: dict[tuple[StateReader, bytes], Changed] = {}

    def of(self, position: Position, reader: StateReader, key: bytes, make: Callable[[], Changed]) -> Changed:
        if position != self._position:
            self._position, self._known = position, {}
        found = self._known.get((reader, key))
        if found is None:
            found = self._known[reader, key] = make()
        return found


class ChangeFeed:
    """Use it as a context manager: it listens from then on. Iterating waits for changes; None: some were missed."""

    def __init__(
        self,
        engine: Engine,
        reader: StateReader,
        tasks: Collection[str],
        now: Callable[[], int],
        rendered: Rendered,
        *,
        key: bytes | None = None,
        prefix: bytes = b"",
        most: int,
        news: asyncio.Event | None = None,
    ) -> None:
        """`news`: set when there is something; watchers that are waited for together share one."""
        self._engine, self._reader, self._now, self._most = engine, reader, now, most
        self._rendered = rendered
        self._tasks = tasks
        self._key, self._prefix = key, prefix
        self._stem = reader.prefix if key is None else keyed_key(reader.prefix, key)
        self._waiting: deque[Changed] = deque()
        self._missed = False
        self._news = news or asyncio.Event()
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> ChangeFeed:
        self._stop = self._engine.commits.listen(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    async def changes(self, *, patience: float) -> AsyncIterator[Changed | None]:
        """What is there; ends when there was nothing for `patience` seconds."""
        if not self._waiting and not self._missed:
            await wait_for_news(self._news, patience)
        self._news.clear()
        for changed in self.take():
            yield changed

    def take(self) -> Iterator[Changed | None]:
        """What is there now."""
        while self._waiting:
            yield self._waiting.popleft()
        if self._missed:
            self._missed = False
            yield None

    def _hear(self, name: str, changes: Iterable[Change]) -> None:
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
        position = Reached(task, view_of(task)).position
        for key, found in by_key.items():
            if key.startswith(self._prefix) and not self._missed:
                make = partial(self._changed, task, key, found, position)
                self._add(self._rendered.of(position, self._reader, key, make))
        self._news.set()

    def _changed(self, task: Task, key: bytes, found: list[Change], position: Position) -> Changed:
        reader, view, now = self._reader, view_of(task), self._now()
        if reader.declaration.kind != "map":
            try:
                return Changed(key, reader.value(view, key, now, most=self._most), None, position)
            except ValueTooLargeError:
                return Changed(key, None, None, position, large=True)
        parts = []
        for place, stored in found:
            parts.append(name_of(parse_keyed(place).subkey) + b":" + (reader.of_entry(view, stored, now) or b"null"))
        return Changed(key, None, b"{" + b",".join(parts) + b"}", position)

    def _add(self, changed: Changed) -> None:
        if len(self._waiting) >= _MOST:
            self._missed = True
            self._waiting.clear()
        else:
            self._waiting.append(changed)

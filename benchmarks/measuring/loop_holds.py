"""How long the event loop is held by handling, by commits, and by each step of a checkpoint.

A coroutine holds the loop from its resumption to its next suspension. Every such slice is measured, and each call of
functions that are called directly. Links are created in a thread, but RocksDB holds the GIL meanwhile and blocks the
loop, so they count here, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from time import perf_counter, thread_time
from typing import Any

from rocksdict import Checkpoint

from tidegate.checkpoints.coordination.coordinator import Coordinator
from tidegate.checkpoints.snapshot.snapshotter import Snapshotter
from tidegate.engine.commit.epoch_alignment import EpochAlignment
from tidegate.engine.task import Task
from tidegate.state import rocksdb

__all__ = ("COMMIT", "HANDLE", "OF_CHECKPOINTS", "Holding", "measured")

HANDLE, COMMIT = "handling", "commits"
HOLD, TAKE, LINK, LEAD = "hold", "flush and upload", "link", "leader"
OF_CHECKPOINTS = (HOLD, TAKE, LINK, LEAD)


class Holding:
    """The longest slice of each kind in seconds, by wall clock and by CPU time, which other processes do not affect."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self.most_cpu: dict[str, float] = {}
        self.clear()

    def clear(self) -> None:
        self.longest = dict.fromkeys((*OF_CHECKPOINTS, HANDLE, COMMIT), 0.0)
        self.most_cpu = dict(self.longest)

    def copy(self) -> Holding:
        return Holding.worst((self,))

    @staticmethod
    def worst(some: Iterable[Holding]) -> Holding:
        """The longest slice of each kind over all of them."""
        worst = Holding()
        for one in some:
            for all_, found in (worst.longest, one.longest), (worst.most_cpu, one.most_cpu):
                all_.update({kind: max(all_[kind], spent) for kind, spent in found.items()})
        return worst

    @contextmanager
    def timing(self, kind: str) -> Iterator[None]:
        started, cpu = perf_counter(), thread_time()
        try:
            yield
        finally:
            self.longest[kind] = max(self.longest[kind], perf_counter() - started)
            self.most_cpu[kind] = max(self.most_cpu[kind], thread_time() - cpu)

    @property
    def by_checkpoints(self) -> tuple[float, float]:
        """Wall clock and CPU time."""
        return max(self.longest[kind] for kind in OF_CHECKPOINTS), max(self.most_cpu[kind] for kind in OF_CHECKPOINTS)

    def summary(self, *kinds: str) -> str:
        return ", ".join(
            f"{kind} {self.longest[kind] * 1000:.1f} ms ({self.most_cpu[kind] * 1000:.1f} ms CPU)" for kind in kinds
        )


@contextmanager
def measured() -> Iterator[Holding]:
    holding = Holding()
    places: list[tuple[Any, str, Any]] = [
        (EpochAlignment, "take_snapshot", _called(holding, HOLD, EpochAlignment.take_snapshot)),
        (Task, "run", _called(holding, HANDLE, Task.run)),
        (Task, "commit", _awaited(holding, COMMIT, Task.commit)),
        (Snapshotter, "take", _awaited(holding, TAKE, Snapshotter.take)),
        (Coordinator, "step", _awaited(holding, LEAD, Coordinator.step)),
        (rocksdb, "Checkpoint", _linking(holding)),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in places]
    try:
        for place, name, function in places:
            setattr(place, name, function)
        yield holding
    finally:
        for place, name, function in before:
            setattr(place, name, function)


def _called(holding: Holding, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*arguments: Any) -> Any:
        with holding.timing(kind):
            return function(*arguments)

    return timed


def _awaited(holding: Holding, kind: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(function)
    async def timed(*arguments: Any, **options: Any) -> Any:
        return await _Pieces(function(*arguments, **options), lambda: holding.timing(kind))

    return timed


class _Pieces:
    """Drives a coroutine and times each slice."""

    def __init__(self, work: Awaitable[Any], timing: Callable[[], AbstractContextManager[None]]) -> None:
        self._steps: Any = work.__await__()
        self._timing = timing

    def __await__(self) -> Generator[Any, Any, Any]:
        resume: Callable[[], Any] = partial(next, self._steps)
        while True:
            try:
                with self._timing():
                    waiting = resume()
            except StopIteration as end:
                return end.value
            try:
                resume = partial(self._send, (yield waiting))
            except BaseException as error:
                resume = partial(self._steps.throw, error)

    def _send(self, value: Any) -> Any:
        """Awaits normally resume with None, which is all that an iterator can send."""
        return next(self._steps) if value is None else self._steps.send(value)


def _linking(holding: Holding) -> Callable[..., Any]:
    class Linking:
        def __init__(self, database: Any) -> None:
            self._checkpoint = Checkpoint(database)

        def create_checkpoint(self, path: str) -> None:
            with holding.timing(LINK):
                self._checkpoint.create_checkpoint(path)

    return Linking

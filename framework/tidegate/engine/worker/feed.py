"""Reads for the tasks of one service: offers them batches, and stops for those that are full."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidegate.engine.task import Task
from tidegate.errors import OffsetOutOfRangeError
from tidegate.logs.base import Batch, Reader, TopicPartition
from tidegate.logs.records import select

__all__ = ("Feed",)

_READ = 4000
"""Records per read: enough to make a read worth its cost, few enough to stay within a few ms."""


class Feed:
    """Reads for those tasks of one service that run here. They come and go while a read is under way."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._tasks: dict[TopicPartition, Task] = {}
        self._offered: dict[TopicPartition, int] = {}
        """How far the tasks know of what was read; only of the partitions that are still read."""
        self._ends: Mapping[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._held: list[Task] = []
        """Tasks that do not want all of their inputs yet."""

    # -- tasks come and go -------------------------------------------------------------------------------------------
    def add(self, task: Task) -> None:
        """Read for this task, from where it says."""
        self._tasks.update(dict.fromkeys(task.inputs, task))
        self._begin(task.positions)
        self.stop_at(self._ends)
        if task.held:
            self._held.append(task)

    def remove(self, task: Task) -> None:
        self._held = [other for other in self._held if other is not task]
        gone = [source for source in task.inputs if self._tasks.get(source) is task]
        self.reader.unassign([source for source in gone if source in self._offered])
        for source in gone:
            del self._tasks[source]
            self._offered.pop(source, None)
        self._paused.difference_update(gone)

    async def renew(self, reader: Reader) -> None:
        """Read with this one instead, from where the tasks are. What is being read is dropped."""
        before, self.reader = self.reader, reader
        self._paused.clear()
        self._begin(dict(self._offered))
        await before.close()

    def _begin(self, positions: Mapping[TopicPartition, int]) -> None:
        self.reader.assign(positions)
        self._offered.update(positions)
        self._paused.difference_update(positions)
        self.reader.resume(positions)

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read these no further: what is appended during a bounded run is for the next one."""
        self._ends = ends
        for source in self._offered.keys() & ends.keys():
            if self._offered[source] >= ends[source]:
                self._stop(source)

    # -- reading -----------------------------------------------------------------------------------------------------
    async def read(self, *, timeout: float) -> bool:
        """Offer batches to the tasks that have room. False: nothing new."""
        if not self._offered:
            await asyncio.sleep(min(timeout, 0.05))
            return False
        self._press()
        if self._paused:
            timeout = min(timeout, 0.005)  # soon there will be room again
        reader = self.reader
        try:
            batches = await reader.read(max_records=_READ, timeout=timeout)
        except OffsetOutOfRangeError as error:
            self._fail(error)
            return True
        if reader is not self.reader:
            return True
        self._offer_all(batches)
        gaps = [
            Batch(source, (), position)
            for source, offered in self._offered.items()
            if (position := self.reader.position(source)) > offered
        ]
        self._offer_all(gaps)
        self._release()
        return bool(batches or gaps)

    def _release(self) -> None:
        """Read the other inputs of tasks that have waited for some of them."""
        for task in [task for task in self._held if not task.held]:
            self._held.remove(task)
            self._begin({source: at for source, at in task.positions.items() if not task.inputs[source].topic.carried})
            self.stop_at(self._ends)

    def _offer_all(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.source in self._offered:
                self._offer(batch)

    def _offer(self, batch: Batch) -> None:
        source, end = batch.source, self._ends.get(batch.source)
        self._offered[source] = batch.position
        if end is not None and batch.position >= end:
            batch = Batch(source, select(batch.records, [record.offset < end for record in batch.records]), end)
            self._stop(source)
        self._tasks[source].offer(batch)

    def _fail(self, error: OffsetOutOfRangeError) -> None:
        """The log has lost what a task was to read next: opened again, the task says so, and goes on behind it."""
        source = TopicPartition(error.topic, error.partition)
        task = self._tasks.get(source)
        if task is not None:
            task.handling.fail(error)

    def _stop(self, source: TopicPartition) -> None:
        self.reader.unassign([source])
        del self._offered[source]

    def _press(self) -> None:
        """Stop reading for tasks that are full; go on for those that are not any more."""
        full = {source for source in self._offered if self._tasks[source].full}
        if full != self._paused:
            self.reader.pause(full - self._paused)
            self.reader.resume((self._paused - full) & self._offered.keys())
            self._paused = full

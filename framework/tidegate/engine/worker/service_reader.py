"""Reads the inputs of one service and offers batches to its tasks, with backpressure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidegate.engine.task import Task
from tidegate.errors import OffsetOutOfRangeError
from tidegate.logs.base import Batch, Reader, TopicPartition
from tidegate.logs.records import select

__all__ = ("ServiceReader",)

_READ = 4000
"""Records per read: enough to make a read worth its cost, few enough to stay within a few ms."""


class ServiceReader:
    """One log reader for all tasks of a service in this worker. Tasks may be added and removed during a read."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._tasks: dict[TopicPartition, Task] = {}
        self._offered: dict[TopicPartition, int] = {}
        """By assigned partition, the position up to which its task got batches."""
        self._ends: Mapping[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._held: list[Task] = []
        """Tasks that hold back some of their inputs until others are read."""

    # -- tasks -------------------------------------------------------------------------------------------------------
    def add(self, task: Task) -> None:
        """Read the inputs of a task from its positions on."""
        self._tasks.update(dict.fromkeys(task.inputs, task))
        self._assign(task.positions)
        self.stop_at(self._ends)
        if task.held:
            self._held.append(task)

    def remove(self, task: Task) -> None:
        self._held = [other for other in self._held if other is not task]
        removed = [source for source in task.inputs if self._tasks.get(source) is task]
        self.reader.unassign([source for source in removed if source in self._offered])
        for source in removed:
            del self._tasks[source]
            self._offered.pop(source, None)
        self._paused.difference_update(removed)

    async def replace_reader(self, reader: Reader) -> None:
        """Continue with another log reader from the offered positions. A pending read is dropped."""
        before, self.reader = self.reader, reader
        self._paused.clear()
        self._assign(dict(self._offered))
        await before.close()

    def _assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.reader.assign(positions)
        self._offered.update(positions)
        self._paused.difference_update(positions)
        self.reader.resume(positions)

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read partitions only up to these ends: records appended during a bounded run are left to the next one."""
        self._ends = ends
        for source in self._offered.keys() & ends.keys():
            if self._offered[source] >= ends[source]:
                self._stop(source)

    # -- reading -----------------------------------------------------------------------------------------------------
    async def read(self, *, timeout: float) -> bool:
        """Offer batches to the tasks that are not full. False: there were no new records."""
        if not self._offered:
            await asyncio.sleep(min(timeout, 0.05))
            return False
        self._apply_backpressure()
        if self._paused:
            timeout = min(timeout, 0.005)  # to resume soon
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
        self._resume_held()
        return bool(batches or gaps)

    def _resume_held(self) -> None:
        """Read the inputs that tasks no longer hold back."""
        for task in [task for task in self._held if not task.held]:
            self._held.remove(task)
            self._assign({source: at for source, at in task.positions.items() if not task.inputs[source].topic.carried})
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
        """The log has deleted records that a task has not read. Reopened, the task counts them as lost, and continues
        after them."""
        source = TopicPartition(error.topic, error.partition)
        task = self._tasks.get(source)
        if task is not None:
            task.invoker.fail(error)

    def _stop(self, source: TopicPartition) -> None:
        self.reader.unassign([source])
        del self._offered[source]

    def _apply_backpressure(self) -> None:
        """Pause the inputs of tasks that are full; resume those of tasks that no longer are."""
        full = {source for source in self._offered if self._tasks[source].full}
        if full != self._paused:
            self.reader.pause(full - self._paused)
            self.reader.resume((self._paused - full) & self._offered.keys())
            self._paused = full

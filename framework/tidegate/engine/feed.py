"""Reads for the tasks of one service: offers them batches, and stops for those that are full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.engine.task import Task
from tidegate.logs.base import Batch, Reader, TopicPartition

__all__ = ("Feed",)

_READ = 4000
"""Records per read: enough to make a read worth its cost, few enough to stay within a few ms."""


class Feed:
    """Reads for the tasks of one service."""

    def __init__(self, reader: Reader, tasks: Iterable[Task]) -> None:
        self.reader = reader
        self._by_source = {source: task for task in tasks for source in task.inputs}
        self._offered: dict[TopicPartition, int] = {}
        """How far the tasks know of what was read; only of the partitions that are still read."""
        self._ends: Mapping[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        for task in self._by_source.values():
            reader.assign(task.positions)
            self._offered.update(task.positions)

    def serves(self, task: Task) -> bool:
        return task in self._by_source.values()

    async def replace(self, task: Task, reader: Reader) -> None:
        """This task takes over from the one before it, and begins where it says. What is being read is dropped."""
        before, self.reader = self.reader, reader
        self._by_source.update(dict.fromkeys(task.inputs, task))
        self._offered.update(task.positions)
        self._paused.clear()
        reader.assign(self._offered)
        self.stop_at(self._ends)
        await before.close()

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read these no further: what is appended during a bounded run is for the next one."""
        self._ends = ends
        for source in self._offered.keys() & ends.keys():
            if self._offered[source] >= ends[source]:
                self._stop(source)

    async def read(self, *, timeout: float) -> bool:
        """Offer batches to the tasks that have room. False: nothing new."""
        self._press()
        if self._paused:
            timeout = min(timeout, 0.005)  # soon there will be room again
        reader = self.reader
        batches = await reader.read(max_records=_READ, timeout=timeout)
        if reader is not self.reader:
            return True
        for batch in batches:
            self._offer(batch)
        gaps = [
            Batch(source, (), position)
            for source, offered in self._offered.items()
            if (position := self.reader.position(source)) > offered
        ]
        for gap in gaps:
            self._offer(gap)
        return bool(batches or gaps)

    def _offer(self, batch: Batch) -> None:
        source, end = batch.source, self._ends.get(batch.source)
        self._offered[source] = batch.position
        if end is not None and batch.position >= end:
            batch = Batch(source, [record for record in batch.records if record.offset < end], end)
            self._stop(source)
        self._by_source[source].offer(batch)

    def _stop(self, source: TopicPartition) -> None:
        self.reader.unassign([source])
        del self._offered[source]

    def _press(self) -> None:
        """Stop reading for tasks that are full; go on for those that are not any more."""
        full = {source for source in self._offered if self._by_source[source].full}
        if full != self._paused:
            self.reader.pause(full - self._paused)
            self.reader.resume((self._paused - full) & self._offered.keys())
            self._paused = full

"""Reads the committed positions of tasks from the log, for processes that do not run these tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.engine.commit.recovery import last_marker
from tidegate.engine.formats.commit_marker import CommitMarker, InputMark, source_name
from tidegate.engine.topology.plan import TaskPlan
from tidegate.logs.base import Reader, TopicPartition
from tidegate.time.clock import MAX_TIME, MIN_TIME

__all__ = ("CommittedPositions", "Offsets", "read_committed", "read_markers")

_READ_TIMEOUT: Final = 5.0
"""How long to search for the next record after a committed position, in seconds."""


class Offsets(Protocol):
    """The methods of a log or an observer that this module uses."""

    def reader(self) -> Reader: ...

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...


@dataclass(frozen=True, kw_only=True)
class CommittedPositions:
    """The committed positions of one task."""

    marker: CommitMarker | None
    """None: the task never ran."""
    unfinished: int
    """Number of records that were started and are not finished."""
    handled: Mapping[TopicPartition, int]
    """Per input partition: all records below this offset are finished."""

    @property
    def watermark(self) -> int:
        return MIN_TIME if self.marker is None else self.marker.watermark

    def lag(self, ends: Mapping[TopicPartition, int]) -> int:
        return sum(max(0, ends[source] - at) for source, at in self.handled.items())

    def finished(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a bounded run with these end offsets is complete."""
        return self.watermark >= MAX_TIME and not self.unfinished and not self.lag(ends)


async def read_committed(
    log: Offsets, tasks: Iterable[TaskPlan]
) -> tuple[dict[str, CommittedPositions], dict[TopicPartition, int]]:
    """The positions by task, and the end offsets of the inputs.

    1. Find the last commit marker of each task. 2. Compare its positions with the end offsets of its inputs, which are
    read afterwards: a task whose positions are at the ends has no lag. 3. Where they differ, search for the next
    record: transaction markers and compaction leave gaps in the offsets."""
    tasks = list(tasks)
    reader = log.reader()
    try:
        markers = await _markers(log, reader, tasks)
        sources = {source for task in tasks for _, source in task.sources}
        starts, ends = await log.start_offsets(sources), dict(await log.end_offsets(sources))
        marks = {
            task.id: {source: _mark(markers[task.id], source, starts[source]) for _, source in task.sources}
            for task in tasks
        }
        resumed = {(source, mark.resume_at) for by_source in marks.values() for source, mark in by_source.items()}
        handled = await _past_gaps(reader, resumed, ends)
    finally:
        await reader.close()
    found = {
        name: CommittedPositions(
            marker=markers[name],
            unfinished=sum(len(mark.unfinished) for mark in by_source.values()),
            handled={source: handled[source, mark.resume_at] for source, mark in by_source.items()},
        )
        for name, by_source in marks.items()
    }
    return found, ends


async def read_markers(log: Offsets, tasks: Iterable[TaskPlan]) -> dict[str, CommitMarker | None]:
    """The last commit marker by task. None: the task never ran."""
    reader = log.reader()
    try:
        return await _markers(log, reader, tasks)
    finally:
        await reader.close()


async def _markers(log: Offsets, reader: Reader, tasks: Iterable[TaskPlan]) -> dict[str, CommitMarker | None]:
    changelogs = {task.id: task.changelog for task in tasks}
    starts, ends = await log.start_offsets(changelogs.values()), await log.end_offsets(changelogs.values())
    found = {}
    for name, changelog in changelogs.items():
        found[name] = await last_marker(changelog, reader, starts[changelog], ends[changelog])
        reader.unassign([changelog])
    return found


def _mark(marker: CommitMarker | None, source: TopicPartition, start: int) -> InputMark:
    known = None if marker is None else marker.inputs.get(source_name(source))
    return (known or InputMark(position=start)).from_start(start)


async def _past_gaps(
    reader: Reader, places: Iterable[tuple[TopicPartition, int]], ends: Mapping[TopicPartition, int]
) -> dict[tuple[TopicPartition, int], int]:
    """The offset of the next record at or after each position, or the end offset if there is none. Several services
    may read one partition, but a reader has one position in it: so their positions are searched one after another."""
    found = {place: place[1] for place in places}
    waiting = sorted(place for place in found if place[1] < ends[place[0]])
    while waiting:
        turn = dict(waiting)
        for source, at in (await _next_records(reader, turn, ends)).items():
            found[source, turn[source]] = at
        waiting = [place for place in waiting if turn[place[0]] != place[1]]
    return found


async def _next_records(
    reader: Reader, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found = dict(positions)
    looking = set(positions)
    reader.assign(positions)
    deadline = asyncio.get_running_loop().time() + _READ_TIMEOUT
    while looking and asyncio.get_running_loop().time() < deadline:
        batches = await reader.read(max_records=len(looking), timeout=0.5)
        reached = {source: at for source in looking if (at := reader.position(source)) >= ends[source]}
        reached |= {batch.source: batch.records[0].offset for batch in batches}
        found |= {source: min(at, ends[source]) for source, at in reached.items()}
        reader.unassign(reached)
        looking -= reached.keys()
    reader.unassign(looking)
    return found

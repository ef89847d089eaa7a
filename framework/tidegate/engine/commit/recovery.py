"""Opening a task's state: the local store brought up to its changelog's end.

1. Start the writer: this fences the former owner and settles its last transaction.
2. Open the local store. One that cannot be read, is ahead of the changelog, of another lineage, or so old that
   tombstones may be missing, is thrown away; it is only a cache.
   A store that is empty takes the newest checkpoint that is whole and fits, if there is one.
3. Replay the changelog from the store's position to its end.
4. Take the input positions and watermarks from the last commit marker.
5. Commit a first marker of our own, so that the next owner starts from here.

Steps 1 to 4 are here; the task does the last, with its ordinary commit.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidegate.engine.formats.commit_marker import CommitMarker, decode_marker
from tidegate.engine.keyed_state.timers import queue_changes
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.topology.plan import TaskPlan
from tidegate.errors import LogError, StoreCorruptError, StoreError
from tidegate.faults import fault_point
from tidegate.logs.base import LogRecord, Reader, TopicPartition
from tidegate.logs.records import read_columns, select
from tidegate.state.base import Change, SnapshotStore, Store, StorePosition
from tidegate.state.layout import MARKER, QUEUE, TIMER, prefix_range

__all__ = ("Recovered", "last_marker", "recover")

logger = logging.getLogger(__name__)

_CHUNK = 10_000
_REPORT_SECONDS = 2.0
"""How often a long replay says how far it is."""
_TOMBSTONE_MS = 24 * 3600 * 1000 // 2
"""A store that was last written longer ago may have missed the removal of keys: half of what changelogs keep them."""


@dataclass(kw_only=True)
class Recovered:
    store: SnapshotStore
    marker: CommitMarker | None
    """None: the task never ran."""
    replayed: int = 0
    fetched: bool = False
    """Whether it began with a checkpoint."""
    rebuilt: str = ""
    """Why the local store was thrown away; empty: it was not."""
    milliseconds: float = 0.0


async def recover(plan: TaskPlan, environment: Environment) -> Recovered:
    try:
        return await _recover(plan, environment)
    except StoreCorruptError as error:  # whether it cannot be opened, or turns out to be damaged when it is used
        logger.warning("%s: %s", plan.id, error)
        environment.stores.destroy(plan.definition.name, plan.number)
        recovered = await _recover(plan, environment)
        recovered.rebuilt = error.detail
        return recovered


async def _recover(plan: TaskPlan, environment: Environment) -> Recovered:
    started = time.perf_counter()
    fault_point("recovery.started")
    restorer = _StateRestorer(plan, environment)
    try:
        reason, replayed = await restorer.restore()
        store = restorer.store
        raw = store.get(MARKER)
        next(store.scan(*prefix_range(QUEUE)), None)  # the first timer is what the task asks for first
    except BaseException:
        with suppress(StoreError):
            restorer.store.close()
        raise
    return Recovered(
        store=store,
        marker=None if raw is None else decode_marker(raw),
        replayed=replayed,
        fetched=restorer.fetched,
        rebuilt=reason,
        milliseconds=(time.perf_counter() - started) * 1000,
    )


class _StateRestorer:
    """Brings a task's store up to its changelog's end. The store may be another one afterwards."""

    def __init__(self, plan: TaskPlan, environment: Environment) -> None:
        self._plan, self._environment = plan, environment
        self._task = plan.definition.name, plan.number
        self.store = environment.stores.open(*self._task, buffered=environment.cache_limit)
        self.fetched = False

    async def restore(self) -> tuple[str, int]:
        """Wipe the store if it is worth nothing, and replay. Returns why it was wiped, and how much was replayed."""
        start, end = await _ends(self._plan, self._environment)
        reader = self._environment.log.reader()
        try:
            return await self._restore_from(reader, start, end)
        finally:
            await reader.close()

    async def _restore_from(self, reader: Reader, start: int, end: int) -> tuple[str, int]:
        plan, store = self._plan, self.store
        reason = _rebuild_reason(store.position, start, end, self._environment.clock.now())
        last = await last_marker(plan.changelog, reader, start, end)
        if last is None and store.position is not None:
            raise LogError(
                f"the changelog {plan.changelog} is gone, but {plan.id} has local state that came from it. "
                f"Restore the log, or start over with 'tidegate reset'."
            )
        if not reason and store.position is not None and last is not None and store.position.lineage != last.lineage:
            reason = "it belongs to another changelog"
        if reason and store.position is not None:
            logger.warning("%s: the local store is rebuilt: %s", plan.id, reason)
            store.wipe()
        if store.position is None and last is not None:
            await self._fetch(last.lineage, start, end)
        return reason, await _replay(plan, self._environment, self.store, reader, last, start, end)

    async def _fetch(self, lineage: str, start: int, end: int) -> None:
        """Begin with a checkpoint. The store that is there is empty."""
        environment = self._environment
        # Another directory each time: a download for an opening that was called off may still be writing to its own.
        directory = environment.stores.scratch_directory("restoring", f"{self._plan.id}-{uuid.uuid4().hex[:8]}")
        fault_point("recovery.fetching")
        oldest = environment.clock.now() - _TOMBSTONE_MS
        if not await environment.snapshots.fetch(self._plan, lineage, start, end, oldest, directory):
            return
        self.store.close()
        self.store = environment.stores.adopt(*self._task, directory, buffered=environment.cache_limit)
        self.fetched = True
        fault_point("recovery.fetched")


async def _ends(plan: TaskPlan, environment: Environment) -> tuple[int, int]:
    source = plan.changelog
    start = await environment.log.start_offsets([source])
    end = await environment.log.end_offsets([source])
    return start[source], end[source]


def _rebuild_reason(position: StorePosition | None, start: int, end: int, now: int) -> str:
    if position is None:
        return ""
    if position.offset > end:
        return "it is ahead of its changelog"
    if position.offset < start:
        return "its changelog no longer reaches back so far"
    if now - position.written_ms > _TOMBSTONE_MS and position.offset < end:
        return "it is so old that removals may be missing from the changelog's tail"
    return ""


async def last_marker(changelog: TopicPartition, reader: Reader, start: int, end: int) -> CommitMarker | None:
    """The newest commit marker: each commit ends in one, so it is among the last records."""
    back = 2
    while end > start:
        first = max(start, end - back)
        found: CommitMarker | None = None
        reader.assign({changelog: first})
        while reader.position(changelog) < end:
            for batch in await reader.read(timeout=5.0):
                markers = [record.value for record in batch.records if record.key == MARKER and record.value]
                found = decode_marker(markers[-1]) if markers else found
        if found is not None or first == start:
            return found
        back *= 16
    return None


async def _replay(
    plan: TaskPlan,
    environment: Environment,
    store: Store,
    reader: Reader,
    last: CommitMarker | None,
    start: int,
    end: int,
) -> int:
    position = store.position.offset if store.position is not None else start
    if position >= end or last is None:
        return 0
    reader.assign({plan.changelog: position})
    replayed = 0
    reported_at = time.monotonic()
    while (at := reader.position(plan.changelog)) < end:
        if time.monotonic() - reported_at >= _REPORT_SECONDS:
            reported_at = time.monotonic()
            done = (at - position) / (end - position)
            logger.info("%s: restoring its state, %.0f %% (%s records)", plan.id, 100 * done, f"{replayed:,}")
        for batch in await reader.read(max_records=_CHUNK, timeout=5.0):
            records = batch.records
            if batch.position > end:
                records = select(records, [record.offset < end for record in records])
            reached = StorePosition(last.lineage, min(batch.position, end), environment.clock.now())
            store.apply(_changes(records, store), reached)
            replayed += len(records)
            fault_point("recovery.replaying")
    return replayed


def _changes(records: Sequence[LogRecord], store: Store) -> list[Change]:
    """What the records mean for the store: themselves, and the queue entries that follow from timers."""
    keys, values, _ = read_columns(records, 0, len(records))
    changes: list[Change] = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
    timers: dict[bytes, bytes | None] = {}
    for key, value in [change for change in changes if change[0][:1] == TIMER]:
        before = timers[key] if key in timers else store.get(key)
        changes += queue_changes(key, before, value)
        timers[key] = value
    return changes

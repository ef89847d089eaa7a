"""Recovery of a task's state: restores the local store up to the end of its changelog.

1. Start the writer: this fences the former owner and completes or aborts its last transaction.
2. Open the local store. It is wiped if it cannot be read, is ahead of the changelog, has another lineage, or is so old
   that tombstones may be compacted away: the store is only a cache.
   An empty store is initialized from the newest complete checkpoint that fits the changelog, if there is one.
3. Replay the changelog from the store's position to its end.
4. Take the input positions and watermarks from the last commit marker.
5. Commit a first marker, so that the next owner starts from here.

This module has steps 1 to 4; step 5 is the first commit of the task.
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
"""How often a long replay logs its progress."""
_TOMBSTONE_MS = 24 * 3600 * 1000 // 2
"""A store that was last written longer ago may miss tombstones: half of the time for which changelogs keep them."""


@dataclass(kw_only=True)
class Recovered:
    store: SnapshotStore
    marker: CommitMarker | None
    """None: the task never ran."""
    replayed: int = 0
    fetched: bool = False
    """Whether the store was initialized from a checkpoint."""
    rebuilt: str = ""
    """Why the local store was rebuilt; empty: it was not."""
    milliseconds: float = 0.0


async def recover(plan: TaskPlan, environment: Environment) -> Recovered:
    try:
        return await _recover(plan, environment)
    except StoreCorruptError as error:  # on opening, or on a later access
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
        next(store.scan(*prefix_range(QUEUE)), None)  # the task reads the first timer: a damaged queue must fail here
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
    """Restores a task's store up to the end of its changelog. `store` is replaced if a checkpoint is used."""

    def __init__(self, plan: TaskPlan, environment: Environment) -> None:
        self._plan, self._environment = plan, environment
        self._task = plan.definition.name, plan.number
        self.store = environment.stores.open(*self._task, buffered=environment.cache_limit)
        self.fetched = False

    async def restore(self) -> tuple[str, int]:
        """Wipe an unusable store, and replay. Returns the reason of the wipe, and the number of replayed records."""
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
        """Replace the empty store by one from a checkpoint."""
        environment = self._environment
        # A new directory each time: the download of a cancelled recovery may still write to its own.
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
        return "its changelog starts after its position"
    if now - position.written_ms > _TOMBSTONE_MS and position.offset < end:
        return "it is so old that the changelog may have dropped tombstones that it misses"
    return ""


async def last_marker(changelog: TopicPartition, reader: Reader, start: int, end: int) -> CommitMarker | None:
    """The newest commit marker. Each commit ends with one, so the search goes backwards from the end."""
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
    """The changes of the store: the records, and the entries of the timer queue that follow from them."""
    keys, values, _ = read_columns(records, 0, len(records))
    changes: list[Change] = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
    timers: dict[bytes, bytes | None] = {}
    for key, value in [change for change in changes if change[0][:1] == TIMER]:
        before = timers[key] if key in timers else store.get(key)
        changes += queue_changes(key, before, value)
        timers[key] = value
    return changes

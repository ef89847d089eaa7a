"""Opening a task's state: the local store brought up to its changelog's end.

1. Start the writer: this fences the former owner and settles its last transaction.
2. Open the local store. One that cannot be read, is ahead of the changelog, of another lineage, or so old that
   tombstones may be missing, is thrown away; it is only a cache.
3. Replay the changelog from the store's position to its end.
4. Take the input positions and watermarks from the last commit marker.
5. Commit a first marker of our own, so that whoever comes next starts from here.

Steps 1 to 4 are here; the task does the last, with its ordinary commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tidegate.engine.environment import Environment
from tidegate.engine.markers import CommitMarker, decode_marker
from tidegate.engine.plan import TaskPlan
from tidegate.engine.timers import queue_changes
from tidegate.errors import LogError, StoreCorruptError, StoreError
from tidegate.faults import fault_point
from tidegate.logs.base import LogRecord
from tidegate.state.base import Change, Store, StorePosition
from tidegate.state.layout import MARKER, QUEUE, TIMER, prefix_range

__all__ = ("Recovered", "recover")

logger = logging.getLogger(__name__)

_CHUNK = 10_000
_TOMBSTONE_MS = 24 * 3600 * 1000 // 2
"""A store that was last written longer ago may have missed the removal of keys: half of what changelogs keep them."""


@dataclass(kw_only=True)
class Recovered:
    store: Store
    marker: CommitMarker | None
    """None: the task never ran."""
    replayed: int = 0
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
    store = environment.stores.open(plan.definition.name, plan.number, buffered=environment.cache_limit)
    try:
        reason, replayed = await _bring_up(plan, environment, store)
        raw = store.get(MARKER)
        next(store.scan(*prefix_range(QUEUE)), None)  # the first timer is what the task asks for first
    except BaseException:
        with suppress(StoreError):
            store.close()
        raise
    return Recovered(
        store=store,
        marker=None if raw is None else decode_marker(raw),
        replayed=replayed,
        rebuilt=reason,
        milliseconds=(time.perf_counter() - started) * 1000,
    )


async def _bring_up(plan: TaskPlan, environment: Environment, store: Store) -> tuple[str, int]:
    """Wipe the store if it is worth nothing, and replay. Returns why it was wiped, and how much was replayed."""
    start, end = await _ends(plan, environment)
    reason = _why_useless(store.position, start, end, environment.clock.now())
    last = await _last_marker(plan, environment, start, end)
    if last is None and store.position is not None:
        raise LogError(
            f"the changelog {plan.changelog} is gone, but {plan.id} has local state that came from it. "
            f"Bring the log back, or start the app anew with 'tidegate reset'."
        )
    if not reason and store.position is not None and last is not None and store.position.lineage != last.lineage:
        reason = "it belongs to another changelog"
    if reason and store.position is not None:
        logger.warning("%s: the local store is rebuilt: %s", plan.id, reason)
        store.wipe()
    return reason, await _replay(plan, environment, store, last, start, end)


async def _ends(plan: TaskPlan, environment: Environment) -> tuple[int, int]:
    source = plan.changelog
    start = await environment.log.start_offsets([source])
    end = await environment.log.end_offsets([source])
    return start[source], end[source]


def _why_useless(position: StorePosition | None, start: int, end: int, now: int) -> str:
    if position is None:
        return ""
    if position.offset > end:
        return "it is ahead of its changelog"
    if position.offset < start:
        return "its changelog no longer reaches back so far"
    if now - position.written_ms > _TOMBSTONE_MS and position.offset < end:
        return "it is so old that removals may be missing from the changelog's tail"
    return ""


async def _last_marker(plan: TaskPlan, environment: Environment, start: int, end: int) -> CommitMarker | None:
    """The newest commit marker: each commit ends in one, so it is among the last records."""
    back = 2
    reader = environment.log.reader()
    try:
        while end > start:
            first = max(start, end - back)
            found: CommitMarker | None = None
            reader.assign({plan.changelog: first})
            while reader.position(plan.changelog) < end:
                for batch in await reader.read(timeout=5.0):
                    found = next((decode_marker(r.value) for r in batch.records if r.key == MARKER and r.value), found)
            if found is not None or first == start:
                return found
            back *= 16
        return None
    finally:
        await reader.close()


async def _replay(
    plan: TaskPlan, environment: Environment, store: Store, last: CommitMarker | None, start: int, end: int
) -> int:
    position = store.position.offset if store.position is not None else start
    if position >= end or last is None:
        return 0
    reader = environment.log.reader()
    reader.assign({plan.changelog: position})
    replayed = 0
    try:
        while reader.position(plan.changelog) < end:
            for batch in await reader.read(max_records=_CHUNK, timeout=5.0):
                records = [record for record in batch.records if record.offset < end]
                at = StorePosition(last.lineage, min(batch.position, end), environment.clock.now())
                store.apply(list(_changes(records, store)), at)
                replayed += len(records)
                fault_point("recovery.replaying")
    finally:
        await reader.close()
    return replayed


def _changes(records: Iterable[LogRecord], store: Store) -> Iterator[Change]:
    """What the records mean for the store: themselves, and the queue entries that follow from timers."""
    timers: dict[bytes, bytes | None] = {}
    for record in records:
        key, value = record.key, record.value
        if key is None:
            continue
        yield key, value
        if key[:1] == TIMER:
            before = timers[key] if key in timers else store.get(key)
            yield from queue_changes(key, before, value)
            timers[key] = value

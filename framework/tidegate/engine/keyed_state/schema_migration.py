"""Old state under new code, when a task is opened and before anything is served.

1. Compare what is recorded of each state with its declaration. What the code cannot read, and has no migration for, is
   refused, and nothing is written.
2. Convert or drop what must be, state by state, in the order of the store's keys. Each portion is a transaction of
   its own: the new values, how far this is, and the commit marker as it was. After a crash it goes on from there.
   Entries of maps whose own keys are written otherwise now are moved likewise, each in one transaction.
3. What is new, or can be read as it is, is recorded with the task's first commit.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Final

import msgspec

from tidegate.engine.formats.commit_marker import CommitMarker, encode_marker
from tidegate.engine.keyed_state.schema_plan import Drop, Evolution, Rekey, Rewrite, evolution_of, prefixes_of
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.topology.plan import TaskPlan
from tidegate.errors import MigrationError
from tidegate.faults import fault_point
from tidegate.logs.base import Writer
from tidegate.state.base import Change, Store, StorePosition
from tidegate.state.layout import MARKER, SCHEMA, parse_keyed, prefix_range
from tidegate.state.schema import Migrating, StateSchema, decode_schema, encode_schema
from tidegate.time.clock import MIN_TIME

__all__ = ("evolve", "recorded_schemas", "schema_change")

logger = logging.getLogger(__name__)

_PORTION: Final = 1000
"""Values per transaction: few enough that the loop is held for some ms only."""


def recorded_schemas(store: Store) -> dict[str, StateSchema]:
    return {key[1:].decode(): decode_schema(raw) for key, raw in store.scan(*prefix_range(SCHEMA))}


def schema_change(state: str, schema: StateSchema | None) -> Change:
    return SCHEMA + state.encode(), None if schema is None else encode_schema(schema)


async def evolve(
    plan: TaskPlan, store: Store, marker: CommitMarker | None, writer: Writer, environment: Environment
) -> list[Change]:
    """Bring the state of a task to what its service's code expects. Returns what its first commit records."""
    evolution = _decide(plan, store, environment)
    if marker is not None:
        work = _Work(plan, store, marker, writer, environment)
        for item in evolution.work:
            await work.do(item)
    return [schema_change(name, schema) for name, schema in evolution.adopted.items()]


def _decide(plan: TaskPlan, store: Store, environment: Environment) -> Evolution:
    recorded = recorded_schemas(store)

    def holds(state: str) -> bool:
        ranges = (prefix_range(prefix) for prefix in prefixes_of(state, recorded[state].kind))
        return any(next(store.scan(*bounds), None) is not None for bounds in ranges)

    allowed = environment.settings.allow_dropped == "on"
    return evolution_of(plan.definition, recorded, holds, allow_dropped=allowed)


class _Work:
    """Step 2, for one task."""

    def __init__(
        self, plan: TaskPlan, store: Store, marker: CommitMarker, writer: Writer, environment: Environment
    ) -> None:
        self._plan, self._store, self._marker = plan, store, marker
        self._writer, self._environment = writer, environment

    async def do(self, item: Rewrite | Rekey | Drop) -> None:
        if isinstance(item, Drop):
            await self._drop(item)
        elif isinstance(item, Rekey):
            await self._rekey(item)
        else:
            await self._rewrite(item)

    async def _drop(self, drop: Drop) -> None:
        dropped = 0
        for prefix in prefixes_of(drop.state, drop.old.kind):
            while portion := list(islice(self._store.scan(*prefix_range(prefix)), _PORTION)):
                await self._commit([(key, None) for key, _ in portion])
                dropped += len(portion)
        await self._commit([schema_change(drop.state, None)])
        if dropped:
            logger.warning("%s: dropped what state %r held: the code has no such state", self._plan.id, drop.state)

    async def _rewrite(self, rewrite: Rewrite) -> None:
        (prefix, *_) = prefixes_of(rewrite.state, rewrite.old.kind)
        start, end = prefix_range(prefix)
        begun = recorded_schemas(self._store)[rewrite.state].migrating
        cursor, done = (begun.cursor + b"\x00" if begun is not None else start), 0
        while portion := list(islice(self._store.scan(cursor, end), _PORTION)):
            changes = self._converted(rewrite, portion)
            cursor = portion[-1][0]
            so_far = msgspec.structs.replace(rewrite.old, migrating=Migrating(to=rewrite.new, cursor=cursor))
            await self._commit([*changes, schema_change(rewrite.state, so_far)])
            cursor, done = cursor + b"\x00", done + len(portion)
            await asyncio.sleep(0)
        await self._commit([schema_change(rewrite.state, rewrite.new)])
        logger.info(
            "%s: migrated state %r from version %d to %d: %s values",
            self._plan.id, rewrite.state, rewrite.old.version, rewrite.new.version, f"{done:,}",
        )  # fmt: skip

    async def _rekey(self, rekey: Rekey) -> None:
        """Where two former keys are one now, as of datetimes that are the same moment, the last entry stays."""
        (prefix, *_) = prefixes_of(rekey.state, rekey.new.kind)
        (cursor, end), moved = prefix_range(prefix), 0
        while portion := list(islice(self._store.scan(cursor, end), _PORTION)):
            changes: list[Change] = []
            for place, raw in portion:
                sub = parse_keyed(place).subkey
                if (stored := rekey.keys.stored(sub)) != sub:
                    changes += [(place, None), (place[: len(place) - len(sub)] + stored, raw)]
            cursor = portion[-1][0] + b"\x00"
            if changes:
                await self._commit(changes)
                moved += len(changes) // 2
            await asyncio.sleep(0)
        await self._commit([schema_change(rekey.state, rekey.new)])
        logger.info(
            "%s: map %r is now in the order of its keys: moved %s entries", self._plan.id, rekey.state, f"{moved:,}"
        )

    def _converted(self, rewrite: Rewrite, portion: list[tuple[bytes, bytes]]) -> list[Change]:
        expires = self._expiry(rewrite)
        changes: list[Change] = []
        for key, raw in portion:
            try:
                new = rewrite.convert(raw, expires)
                if new is None and rewrite.new.kind == "list":
                    raise ValueError("the items of a list cannot be removed one by one; return something")
            except Exception as error:
                name = b"" if rewrite.new.kind == "operator" else parse_keyed(key).key
                raise MigrationError(self._plan.definition.name, rewrite.state, name, error) from error
            changes.append((key, new))
        return changes

    def _expiry(self, rewrite: Rewrite) -> int:
        """Of values that get a time to live: it begins now."""
        ttl, now = rewrite.declaration.ttl, self._environment.clock.now()
        if ttl is None:
            return 0
        known = self._marker.watermark if ttl.time == "event" and self._marker.watermark > MIN_TIME else now
        return known + ttl.ms

    async def _commit(self, changes: list[Change]) -> None:
        now, source = self._environment.clock.now(), self._plan.changelog
        every = [*changes, (MARKER, encode_marker(self._marker))]
        positions = await self._writer.append({source: [(key, value, now, ()) for key, value in every]})
        fault_point("state.migrating")
        self._store.apply(every, StorePosition(self._marker.lineage, positions[source], now))

"""Migrates the state of a task to the declarations of the current code, when the task opens and before queries read it.

1. Compare the recorded schema of each state with its declaration. If the code cannot read a state and has no migration
   for it, the task is refused, and nothing is written.
2. Convert or drop state by state, in the order of the store's keys. Each batch is one transaction: the new values, the
   progress, and the unchanged commit marker. After a crash the migration continues with the next batch. Map entries
   whose keys have another layout now are moved in the same way.
3. The schemas of new states, and of those whose values are readable as they are, are recorded by the task's first
   commit.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import Final

import msgspec

from tidegate.engine.formats.commit_marker import CommitMarker, encode_marker
from tidegate.engine.keyed_state.schema_plan import Drop, Rekey, Rewrite, SchemaPlan, plan_schemas, prefixes_of
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.topology.plan import TaskPlan
from tidegate.errors import MigrationError
from tidegate.faults import fault_point
from tidegate.logs.base import Writer
from tidegate.state.base import Change, Store, StorePosition
from tidegate.state.layout import MARKER, SCHEMA, parse_keyed, prefix_range
from tidegate.state.schema import Migrating, StateSchema, decode_schema, encode_schema
from tidegate.time.clock import MIN_TIME

__all__ = ("migrate_state", "recorded_schemas", "schema_change")

logger = logging.getLogger(__name__)

_BATCH: Final = 1000
"""Values per transaction: few enough to block the event loop for some ms only."""


def recorded_schemas(store: Store) -> dict[str, StateSchema]:
    return {key[1:].decode(): decode_schema(raw) for key, raw in store.scan(*prefix_range(SCHEMA))}


def schema_change(state: str, schema: StateSchema | None) -> Change:
    return SCHEMA + state.encode(), None if schema is None else encode_schema(schema)


async def migrate_state(
    plan: TaskPlan, store: Store, marker: CommitMarker | None, writer: Writer, environment: Environment
) -> list[Change]:
    """Migrate the state of a task. Returns the schema changes that its first commit records."""
    schema_plan = _plan_schemas(plan, store, environment)
    if marker is not None:
        migration = _StateMigration(plan, store, marker, writer, environment)
        for step in schema_plan.steps:
            await migration.run(step)
    return [schema_change(name, schema) for name, schema in schema_plan.adopted.items()]


def _plan_schemas(plan: TaskPlan, store: Store, environment: Environment) -> SchemaPlan:
    recorded = recorded_schemas(store)

    def has_values(state: str) -> bool:
        ranges = (prefix_range(prefix) for prefix in prefixes_of(state, recorded[state].kind))
        return any(next(store.scan(*bounds), None) is not None for bounds in ranges)

    allowed = environment.settings.allow_dropped == "on"
    return plan_schemas(plan.definition, recorded, has_values, allow_dropped=allowed)


class _StateMigration:
    """Step 2, for one task."""

    def __init__(
        self, plan: TaskPlan, store: Store, marker: CommitMarker, writer: Writer, environment: Environment
    ) -> None:
        self._plan, self._store, self._marker = plan, store, marker
        self._writer, self._environment = writer, environment

    async def run(self, step: Rewrite | Rekey | Drop) -> None:
        if isinstance(step, Drop):
            await self._drop(step)
        elif isinstance(step, Rekey):
            await self._rekey(step)
        else:
            await self._rewrite(step)

    async def _drop(self, drop: Drop) -> None:
        dropped = 0
        for prefix in prefixes_of(drop.state, drop.old.kind):
            while batch := list(islice(self._store.scan(*prefix_range(prefix)), _BATCH)):
                await self._commit([(key, None) for key, _ in batch])
                dropped += len(batch)
        await self._commit([schema_change(drop.state, None)])
        if dropped:
            logger.warning(
                "%s: dropped the values of state %r, which the code no longer has", self._plan.id, drop.state
            )

    async def _rewrite(self, rewrite: Rewrite) -> None:
        (prefix, *_) = prefixes_of(rewrite.state, rewrite.old.kind)
        start, end = prefix_range(prefix)
        interrupted = recorded_schemas(self._store)[rewrite.state].migrating
        cursor, count = (interrupted.cursor + b"\x00" if interrupted is not None else start), 0
        while batch := list(islice(self._store.scan(cursor, end), _BATCH)):
            changes = self._converted(rewrite, batch)
            cursor = batch[-1][0]
            progress = msgspec.structs.replace(rewrite.old, migrating=Migrating(to=rewrite.new, cursor=cursor))
            await self._commit([*changes, schema_change(rewrite.state, progress)])
            cursor, count = cursor + b"\x00", count + len(batch)
            await asyncio.sleep(0)
        await self._commit([schema_change(rewrite.state, rewrite.new)])
        logger.info(
            "%s: migrated state %r from version %d to %d: %s values",
            self._plan.id, rewrite.state, rewrite.old.version, rewrite.new.version, f"{count:,}",
        )  # fmt: skip

    async def _rekey(self, rekey: Rekey) -> None:
        """If two old keys become the same key, such as datetimes of the same moment, the last entry is kept."""
        (prefix, *_) = prefixes_of(rekey.state, rekey.new.kind)
        (cursor, end), moved = prefix_range(prefix), 0
        while batch := list(islice(self._store.scan(cursor, end), _BATCH)):
            changes: list[Change] = []
            for store_key, raw in batch:
                subkey = parse_keyed(store_key).subkey
                if (stored := rekey.keys.stored(subkey)) != subkey:
                    changes += [(store_key, None), (store_key[: len(store_key) - len(subkey)] + stored, raw)]
            cursor = batch[-1][0] + b"\x00"
            if changes:
                await self._commit(changes)
                moved += len(changes) // 2
            await asyncio.sleep(0)
        await self._commit([schema_change(rekey.state, rekey.new)])
        logger.info(
            "%s: map %r is now in the order of its keys: moved %s entries", self._plan.id, rekey.state, f"{moved:,}"
        )

    def _converted(self, rewrite: Rewrite, batch: list[tuple[bytes, bytes]]) -> list[Change]:
        expires = self._expiry(rewrite)
        changes: list[Change] = []
        for key, raw in batch:
            try:
                new = rewrite.convert(raw, expires)
                if new is None and rewrite.new.kind == "list":
                    raise ValueError("a migration cannot remove items of a list: return a value, not None")
            except Exception as error:
                name = b"" if rewrite.new.kind == "operator" else parse_keyed(key).key
                raise MigrationError(self._plan.definition.name, rewrite.state, name, error) from error
            changes.append((key, new))
        return changes

    def _expiry(self, rewrite: Rewrite) -> int:
        """The expiry of values whose state has a new time to live, which starts now."""
        ttl, now = rewrite.declaration.ttl, self._environment.clock.now()
        if ttl is None:
            return 0
        start = self._marker.watermark if ttl.time == "event" and self._marker.watermark > MIN_TIME else now
        return start + ttl.ms

    async def _commit(self, changes: list[Change]) -> None:
        now, source = self._environment.clock.now(), self._plan.changelog
        committed = [*changes, (MARKER, encode_marker(self._marker))]
        positions = await self._writer.append({source: [(key, value, now, ()) for key, value in committed]})
        fault_point("state.migrating")
        self._store.apply(committed, StorePosition(self._marker.lineage, positions[source], now))

"""Restore: a new run of an app starts from a savepoint.

1. No worker of the app may run; the caller ensures that.
2. Fetch the savepoint, verifying every file, and compare its schemas with the code's. An incompatible savepoint is
   refused here, and nothing was changed.
3. Choose the id of the run, higher than any before, and its parallelism. Remove the topics that a failed attempt has
   left under that id.
4. Create the run's topics. Load the in-flight records, then the state, and last in each changelog a commit marker with
   the positions. No task reads them yet: until here, a worker that starts continues the old run.
5. Append the new run to the control topic. From here on, a worker that starts continues the new run.
6. Fence every transactional id of the old run, so that none of its tasks can commit any more, and record that in the
   control topic. After a crash between 5 and 6, the first worker does it.
7. Remove what is no longer needed: local stores, and the topics of the runs before the old one.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidegate.checkpoints.restore.loader import Loader, LoadStats
from tidegate.checkpoints.restore.rescale import SavepointApp, chosen_parallelism, new_marker
from tidegate.checkpoints.restore.start_positions import Start, check_starts, resolve_starts
from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.checkpoints.storage.savepoint_state import fetch_stores
from tidegate.engine.commit.recovery import last_marker
from tidegate.engine.formats.commit_marker import encode_marker
from tidegate.engine.keyed_state.schema_migration import recorded_schemas
from tidegate.engine.keyed_state.schema_plan import plan_schemas, prefixes_of
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import Run, current_run, fence, run_record
from tidegate.errors import DroppedStateError, UsageError
from tidegate.faults import fault_point
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import KEY_GROUPS
from tidegate.logs.base import Log, TopicPartition, TopicSpec, Writer
from tidegate.settings import Settings
from tidegate.state.base import Store
from tidegate.state.layout import MARKER, prefix_range
from tidegate.time.clock import Clock

__all__ = ("OnProgress", "Restore", "RestoreOptions", "RestoreResult", "Target")

_LINEAGE: Final = 12
"""Characters of a lineage that identify it."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The app to restore, as its code is now, and its log."""

    app: str
    services: tuple[ServiceDefinition, ...]
    topics: tuple[TopicDefinition, ...]
    settings: Settings
    log: Log
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    partitions: Mapping[str | None, int] = field(default_factory=dict)
    """Tasks by service; the key None: all others."""
    starts: Mapping[str, Start] = field(default_factory=dict)
    """By topic: where to start reading, instead of at the savepoint's position."""
    allow_dropped: bool = False
    """Leave out services and states that the code no longer has."""


@dataclass(frozen=True, kw_only=True)
class RestoreResult:
    run: str
    before: str
    """The run that ended; empty: there was none."""
    parallelism: Mapping[str, int]
    changed: Mapping[str, int]
    """The old parallelism of the services where it has changed."""
    same_log: bool
    dropped: list[str]
    loaded: LoadStats


OnProgress = Callable[[str, int, int], None]
"""Called with the phase, the amount done, and the total."""


class Restore:
    def __init__(
        self, reader: CheckpointReader, target: Target, options: RestoreOptions, scratch: Path, on_progress: OnProgress
    ) -> None:
        """`scratch`: a directory for the downloaded stores; it is removed at the end."""
        self._reader, self._manifest = reader, reader.manifest
        self._target, self._options, self._scratch = target, options, scratch
        self._on_progress = on_progress
        self._before = SavepointApp(reader.manifest, target.app)
        self._stores: dict[str, Store] = {}

    async def run(self) -> RestoreResult:
        with ExitStack() as opened:
            opened.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            await self._fetch(opened)
            current = await current_run(self._target.log, self._target.app)
            lineages = await self._lineages(current)
            writer = await self._target.log.writer(f"{self._target.app}.restore")
            try:
                return await self._restore(writer, current, lineages)
            finally:
                await writer.close()

    # -- step 2 ------------------------------------------------------------------------------------------------------
    async def _fetch(self, opened: ExitStack) -> None:
        if self._manifest.key_groups != KEY_GROUPS:
            raise UsageError(f"{self._reader.where} has {self._manifest.key_groups} key groups, not {KEY_GROUPS}")
        self._stores = await fetch_stores(
            self._reader, self._scratch, opened, lambda done, total: self._on_progress("fetching", done, total)
        )

    def _check(self, plan: Plan) -> list[str]:
        """Raises SchemaError, DroppedStateError. Returns descriptions of the services and states that are left out."""
        dropped = []
        for name, tasks in self._before.services.items():
            service = plan.services.get(name)
            if service is None:
                if not self._options.allow_dropped and any(self._holds(task, None) for task in tasks):
                    raise DroppedStateError(name, {})
                dropped.append(f"service {name}")
                continue
            for task in tasks:
                dropped += [f"state {state} of {name}" for state in self._check_states(service, task)]
        return sorted(set(dropped))

    def _check_states(self, service: ServiceDefinition, task: TaskSnapshot) -> list[str]:
        recorded = recorded_schemas(self._stores[task.task])

        def holds(state: str) -> bool:
            return self._holds(task, prefixes_of(state, recorded[state].kind))

        plan_schemas(service, recorded, holds, allow_dropped=self._options.allow_dropped)
        return [state for state in recorded if state not in service.states]

    def _holds(self, task: TaskSnapshot, prefixes: Iterable[bytes] | None) -> bool:
        """Whether a task has an entry with one of these prefixes; None: any entry."""
        store, tags = self._stores[task.task], prefixes or (b"\x02", b"\x03", b"\x05")
        return any(next(store.scan(*prefix_range(prefix)), None) is not None for prefix in tags)

    # -- steps 3 to 6 ------------------------------------------------------------------------------------------------
    async def _restore(self, writer: Writer, current: Run, lineages: set[str]) -> RestoreResult:
        target = self._target
        run = Run(
            id=str(max(int(current.id), int(self._manifest.run)) + 1),
            savepoint=self._manifest.id,
            started_ms=target.clock.now(),
            ancestors=self._ancestors(current),
            fence=await self._transactional_ids(current),
            previous=current.id,
            lineages=tuple(sorted(lineages)),
        )
        same_log = any(task.lineage[:_LINEAGE] in lineages for task in self._manifest.tasks)
        await self._remove_leftovers(run)
        plan = await self._plan(run)
        dropped = self._check(plan)
        check_starts(plan, self._options.starts, same_log=same_log)
        await self._create(plan)
        starts = await resolve_starts(plan, target.log, self._options.starts, same_log=same_log)
        loaded = await self._load(plan, writer)
        now = target.clock.now()
        for task in plan.tasks:
            marker = new_marker(self._before, plan, task, starts, lineage=uuid.uuid4().hex)
            await writer.append({task.changelog: [(MARKER, encode_marker(marker), now, ())]})
        fault_point("restore.loaded")
        await writer.append({plan.control: [run_record(run, now)]})
        fault_point("restore.begun")
        await fence(target.log, plan.control, run, now)
        fault_point("restore.fenced")
        await self._delete_older_runs(current, run)
        return RestoreResult(
            run=run.id,
            before=current.id if run.fence else "",
            parallelism={name: service.tasks for name, service in plan.services.items()},
            changed=self._changed(plan),
            same_log=same_log,
            dropped=dropped,
            loaded=loaded,
        )

    def _ancestors(self, current: Run) -> tuple[str, ...]:
        own = f"{self._manifest.app}|{self._manifest.run}"
        other = self._manifest.app != self._target.app
        return tuple(dict.fromkeys((*current.ancestors, *((own,) if other else ()))))

    def _changed(self, plan: Plan) -> dict[str, int]:
        old = {name: len(tasks) for name, tasks in self._before.services.items()}
        return {name: old[name] for name, s in plan.services.items() if name in old and old[name] != s.tasks}

    async def _plan(self, run: Run) -> Plan:
        target, existing = self._target, await self._target.log.topics()
        first = Plan(target.app, target.services, target.topics, target.settings, existing, run, parallelism={})
        chosen = chosen_parallelism(self._before, first.given, self._options.partitions)
        return Plan(target.app, target.services, target.topics, target.settings, existing, run, parallelism=chosen)

    async def _create(self, plan: Plan) -> None:
        await self._target.log.create([*plan.specs, *(await asyncio.to_thread(self._in_flight_specs, plan)).values()])

    def _in_flight_specs(self, plan: Plan) -> dict[str, TopicSpec]:
        """In-flight topics are created only for inputs that have in-flight records."""
        loader = Loader(self._before, plan, _NoWriter(), self._target.clock, lambda _: None)
        found: dict[str, TopicSpec] = {}
        for name, tasks in self._before.services.items():
            for task in tasks:
                found |= loader.specs(name, self._reader.in_flight(task))
        return found

    async def _load(self, plan: Plan, writer: Writer) -> LoadStats:
        total = max(1, sum(store.approximate_entries() for store in self._stores.values()))
        loader = Loader(
            self._before, plan, writer, self._target.clock,
            lambda stats: self._on_progress("loading", min(total, stats.entries), total),
        )  # fmt: skip
        for name, tasks in self._before.services.items():
            service = plan.services.get(name)
            if service is None:
                continue
            for task in tasks:
                await loader.load_in_flight(name, self._reader.in_flight(task))
                await loader.load_task(service, task.number, self._stores[task.task])
                fault_point("restore.loading")
            await loader.load_operator_state(service, [self._stores[task.task] for task in tasks])
        await loader.flush()
        self._on_progress("loading", total, total)
        return loader.stats

    # -- the old run -------------------------------------------------------------------------------------------------
    async def _changelogs(self, run: Run) -> dict[str, int]:
        """The partition counts of a run's changelogs, by service."""
        stem, end = run.name(self._target.app, ""), ".changelog"
        existing = await self._target.log.topics()
        return {
            name.removeprefix(stem).removesuffix(end): spec.partitions
            for name, spec in existing.items()
            if name.startswith(stem) and name.endswith(end) and not _NUMBERED.match(name.removeprefix(stem))
        }

    async def _transactional_ids(self, run: Run) -> tuple[str, ...]:
        app = self._target.app
        tasks = (await self._changelogs(run)).items()
        ids = [run.name(app, f"{service}.{number}") for service, count in tasks for number in range(count)]
        return (*ids, f"{app}.leader") if ids else ()

    async def _lineages(self, run: Run) -> set[str]:
        """The lineages of all changelogs that this log has, or had in earlier runs: a savepoint with one of them was
        taken on this log."""
        log, app = self._target.log, self._target.app
        stems = (f"{app}.", f"{self._manifest.app}.")
        topics = [
            spec
            for spec in (await log.topics()).values()
            if spec.name.startswith(stems) and spec.name.endswith(".changelog")
        ]
        sources = [TopicPartition(spec.name, number) for spec in topics for number in range(spec.partitions)]
        starts, ends = await log.start_offsets(sources), await log.end_offsets(sources)
        known, reader = set(run.lineages), log.reader()
        try:
            for source in sources:
                marker = await last_marker(source, reader, starts[source], ends[source])
                reader.unassign([source])
                if marker is not None:
                    known.add(marker.lineage[:_LINEAGE])
        finally:
            await reader.close()
        return known

    async def _remove_leftovers(self, run: Run) -> None:
        """Step 3: topics that a failed attempt has left under this run's id."""
        stem = run.name(self._target.app, "")
        leftovers = [name for name in await self._target.log.topics() if name.startswith(stem)]
        if leftovers:
            await self._target.log.delete(leftovers)

    # -- step 7 ------------------------------------------------------------------------------------------------------
    async def _delete_older_runs(self, last: Run, run: Run) -> None:
        """Deletes the topics of all runs except this one and the last."""
        app = self._target.app
        named = re.compile(rf"{re.escape(app)}\.run-(\d+)\.")
        kept = {run.id, last.id}
        existing = await self._target.log.topics()
        obsolete = [name for name in existing if (found := named.match(name)) and found[1] not in kept]
        if last.id != "1":
            obsolete += [name for name in existing if _belongs_to_first_run(app, name, existing)]
        if obsolete:
            await self._target.log.delete(obsolete)


_NUMBERED: Final = re.compile(r"run-\d+\.")


def _belongs_to_first_run(app: str, name: str, existing: Mapping[str, TopicSpec]) -> bool:
    """Whether a topic belongs to the first run of this app, whose topics have no run id in their names. Topics of
    another app whose name starts with this app's do not."""
    others = tuple(
        other.removesuffix("control")
        for other in existing
        if other.startswith(f"{app}.") and other.endswith(".control") and other != f"{app}.control"
    )
    internal = name.startswith(f"{app}.") and name.endswith((".changelog", ".by-key", ".in-flight"))
    return internal and not name.startswith(others) and not _NUMBERED.match(name.removeprefix(f"{app}."))


class _NoWriter:
    """For a loader that only determines topics."""

    async def append(self, *_: object) -> Mapping[TopicPartition, int]:
        raise NotImplementedError

    async def close(self) -> None: ...

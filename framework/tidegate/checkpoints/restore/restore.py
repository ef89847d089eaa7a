"""Restoring: a new run of an app begins where a savepoint was taken.

1. Nobody may work with the app; whoever calls this has seen to it.
2. Fetch the savepoint, every file checked, and compare its schemas with the code's. What does not fit is refused here,
   and nothing was changed.
3. Choose the number of the run, higher than any before, and its parallelism. Remove what an attempt that failed has
   left under that number.
4. Create the run's topics. Load what was in flight, then the state, and last in each changelog a commit marker with the
   positions. Nobody reads any of it yet: until here, the old run goes on if a worker starts.
5. Write to the control topic that the run has begun. From here on it is the new run that goes on.
6. Fence every transactional id of the run before, so that nobody of it can commit any more, and say that this is done.
   After a crash between 5 and 6, the first worker does it.
7. Remove what nobody needs: local stores, and the topics of runs before the last one.
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

from tidegate.checkpoints.restore.loader import Loaded, Loader
from tidegate.checkpoints.restore.rescale import Before, chosen_parallelism, new_marker
from tidegate.checkpoints.restore.start_positions import Start, check_starts, resolve_starts
from tidegate.checkpoints.storage.contents import fetch_stores
from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.engine.commit.recovery import last_marker
from tidegate.engine.formats.commit_marker import encode_marker
from tidegate.engine.keyed_state.schema_migration import recorded_schemas
from tidegate.engine.keyed_state.schema_plan import evolution_of, prefixes_of
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

__all__ = ("Restore", "RestoreOptions", "Restored", "Target", "Tell")

_LINEAGE: Final = 12
"""Characters by which a lineage is known."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The app that is to go on, as its code is now, and the log on which it will."""

    app: str
    services: tuple[ServiceDefinition, ...]
    topics: tuple[TopicDefinition, ...]
    settings: Settings
    log: Log
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    partitions: Mapping[str | None, int] = field(default_factory=dict)
    """How many tasks, by service; None: all others."""
    starts: Mapping[str, Start] = field(default_factory=dict)
    """Where to read topics from, whatever the savepoint says."""
    allow_dropped: bool = False
    """Leave out what the code has no more."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    run: str
    before: str
    """The run that ended; empty: there was none."""
    parallelism: Mapping[str, int]
    changed: Mapping[str, int]
    """Of these services, what it was."""
    same_log: bool
    dropped: list[str]
    loaded: Loaded


Tell = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and how much there is."""


class Restore:
    def __init__(
        self, reader: CheckpointReader, target: Target, options: RestoreOptions, scratch: Path, tell: Tell
    ) -> None:
        """`scratch`: a directory for what is fetched; it is emptied in the end."""
        self._reader, self._manifest = reader, reader.manifest
        self._target, self._options, self._scratch, self._tell = target, options, scratch, tell
        self._before = Before(reader.manifest, target.app)
        self._stores: dict[str, Store] = {}

    async def run(self) -> Restored:
        with ExitStack() as opened:
            opened.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            await self._fetch(opened)
            current = await current_run(self._target.log, self._target.app)
            known = await self._lineages(current)
            writer = await self._target.log.writer(f"{self._target.app}.restore")
            try:
                return await self._restore(writer, current, known)
            finally:
                await writer.close()

    # -- step 2 ------------------------------------------------------------------------------------------------------
    async def _fetch(self, opened: ExitStack) -> None:
        if self._manifest.key_groups != KEY_GROUPS:
            raise UsageError(f"{self._reader.where} has {self._manifest.key_groups} key groups, not {KEY_GROUPS}")
        self._stores = await fetch_stores(
            self._reader, self._scratch, opened, lambda done, total: self._tell("fetching", done, total)
        )

    def _check(self, plan: Plan) -> list[str]:
        """SchemaError, DroppedStateError. Returns what is left out, in words."""
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

        evolution_of(service, recorded, holds, allow_dropped=self._options.allow_dropped)
        return [state for state in recorded if state not in service.states]

    def _holds(self, task: TaskSnapshot, prefixes: Iterable[bytes] | None) -> bool:
        """Whether a task has any entry of these, or any at all."""
        store, tags = self._stores[task.task], prefixes or (b"\x02", b"\x03", b"\x05")
        return any(next(store.scan(*prefix_range(prefix)), None) is not None for prefix in tags)

    # -- steps 3 to 6 ------------------------------------------------------------------------------------------------
    async def _restore(self, writer: Writer, current: Run, known: set[str]) -> Restored:
        target = self._target
        run = Run(
            id=str(max(int(current.id), int(self._manifest.run)) + 1),
            savepoint=self._manifest.id,
            started_ms=target.clock.now(),
            ancestors=self._ancestors(current),
            fence=await self._transactional_ids(current),
            previous=current.id,
            lineages=tuple(sorted(known)),
        )
        same_log = any(task.lineage[:_LINEAGE] in known for task in self._manifest.tasks)
        await self._remove(run)
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
        await self._forget_older(current, run)
        return Restored(
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
        await self._target.log.create([*plan.specs, *(await asyncio.to_thread(self._carried, plan)).values()])

    def _carried(self, plan: Plan) -> dict[str, TopicSpec]:
        """The topics for what was in flight: only those that hold something are made."""
        loader = Loader(self._before, plan, _NoWriter(), self._target.clock, lambda _: None)
        found: dict[str, TopicSpec] = {}
        for name, tasks in self._before.services.items():
            for task in tasks:
                found |= loader.specs(name, self._reader.in_flight(task))
        return found

    async def _load(self, plan: Plan, writer: Writer) -> Loaded:
        total = max(1, sum(store.approximate_entries() for store in self._stores.values()))
        loader = Loader(
            self._before, plan, writer, self._target.clock,
            lambda loaded: self._tell("loading", min(total, loaded.entries), total),
        )  # fmt: skip
        for name, tasks in self._before.services.items():
            service = plan.services.get(name)
            if service is None:
                continue
            for task in tasks:
                await loader.load_in_flight(name, self._reader.in_flight(task))
                await loader.load_task(service, task.number, self._stores[task.task])
                fault_point("restore.loading")
            await loader.load_operators(service, [self._stores[task.task] for task in tasks])
        await loader.flush()
        self._tell("loading", total, total)
        return loader.loaded

    # -- what there was ----------------------------------------------------------------------------------------------
    async def _changelogs(self, run: Run) -> dict[str, int]:
        """The services that have a changelog in this run, and its partitions."""
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
        """Of all changelogs that this log has, or had in earlier runs: whoever knows them was here."""
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

    async def _remove(self, run: Run) -> None:
        """What an earlier attempt has left."""
        stem = run.name(self._target.app, "")
        left = [name for name in await self._target.log.topics() if name.startswith(stem)]
        if left:
            await self._target.log.delete(left)

    # -- step 7 ------------------------------------------------------------------------------------------------------
    async def _forget_older(self, last: Run, run: Run) -> None:
        """Topics of all runs but this one and the last."""
        app = self._target.app
        named = re.compile(rf"{re.escape(app)}\.run-(\d+)\.")
        kept = {run.id, last.id}
        existing = await self._target.log.topics()
        gone = [name for name in existing if (found := named.match(name)) and found[1] not in kept]
        if last.id != "1":
            gone += [name for name in existing if _of_the_first(app, name, existing)]
        if gone:
            await self._target.log.delete(gone)


_NUMBERED: Final = re.compile(r"run-\d+\.")


def _of_the_first(app: str, name: str, existing: Mapping[str, TopicSpec]) -> bool:
    """Whether a topic was made for the first run of this app, and not of one whose name only begins alike."""
    others = tuple(
        other.removesuffix("control")
        for other in existing
        if other.startswith(f"{app}.") and other.endswith(".control") and other != f"{app}.control"
    )
    made = name.startswith(f"{app}.") and name.endswith((".changelog", ".by-key", ".in-flight"))
    return made and not name.startswith(others) and not _NUMBERED.match(name.removeprefix(f"{app}."))


class _NoWriter:
    """For a loader that only looks."""

    async def append(self, *_: object) -> Mapping[TopicPartition, int]:
        raise NotImplementedError

    async def close(self) -> None: ...

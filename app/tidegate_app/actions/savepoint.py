"""`tidegate savepoint`: takes, lists, shows, restores, compares, exports and deletes savepoints."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tidegate.checkpoints.restore.restore import RestoreOptions, RestoreResult
from tidegate.checkpoints.restore.start_positions import parse_starts
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.diff import Difference, StateDifference, differences, differing_states
from tidegate.checkpoints.storage.export import Format, export_state
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.checkpoints.storage.reader import CheckpointReader, open_checkpoint, open_uri
from tidegate.checkpoints.storage.savepoint_state import SavepointState, StateEntry, open_savepoint_state
from tidegate.client.log_access import LogAccess
from tidegate.directories import checkpoint_url
from tidegate.errors import CheckpointError, CheckpointFailedError, UnknownNameError, UsageError
from tidegate.formatting import count
from tidegate.host.app_definition import AppDefinition
from tidegate.query.json_values import json_bytes, json_key
from tidegate.time.clock import MIN_TIME
from tidegate_app.output import note, print_json, print_table, stderr_console, write_lines

__all__ = ("Savepoints", "restore_options")


def restore_options(partitions: Iterable[str], starts: Iterable[str], *, allow_dropped: bool) -> RestoreOptions:
    asked: dict[str | None, int] = {}
    for text in partitions:
        service, _, number = text.rpartition("=")
        if not number.isdecimal():
            raise UsageError(f"--partitions {text}: write a number, or SERVICE=NUMBER")
        asked[service or None] = int(number)
    return RestoreOptions(partitions=asked, starts=parse_starts(starts), allow_dropped=allow_dropped)


class Savepoints:
    """The savepoints of one app."""

    def __init__(self, definition: AppDefinition, flags: Mapping[str, Any]) -> None:
        self._definition, self._flags = definition, flags
        self._settings = definition.resolve(flags).settings

    @property
    def _storage(self) -> CheckpointStorage:
        return CheckpointStorage(checkpoint_url(self._definition.id, self._settings), self._definition.id)

    def open(self, name: str) -> CheckpointReader:
        """Open a savepoint by its name or number in the app's storage, or by its URI."""
        return open_uri(name) if "/" in name else open_checkpoint(self._storage, name)

    # -- taking and restoring ----------------------------------------------------------------------------------------
    async def create(self, name: str, *, stop: bool, timeout: float | None) -> None:
        access = LogAccess(self._definition, self._flags)
        async with access.opened():
            with _bar(f"taking {name}"):
                try:
                    await access.checkpoint(name, stop=stop, timeout=timeout)
                except TimeoutError:
                    raise CheckpointFailedError(0, "no worker has responded in time") from None
        manifest = await asyncio.to_thread(self._storage.manifest, name)
        where = self._storage.where(self._storage.folder_of_manifest(manifest))
        flying = count(manifest.in_flight_records, "record")
        note(f"savepoint {name} is complete: {_size(manifest.size)}, {flying} in flight, in {where}")
        if stop:
            note("The app has stopped. Continue with 'tidegate worker', or move it with 'tidegate savepoint restore'.")

    async def restore(self, name: str, options: RestoreOptions, *, app_id: str | None) -> None:
        reader = await asyncio.to_thread(self.open, name)
        definition = self._definition if app_id is None else replace(self._definition, id=app_id)
        access = LogAccess(definition, self._flags)
        async with access.opened():
            with _bar("restoring") as bar:
                restored = await access.restore(reader, options, bar.stage)
        _print_restored(definition.id, reader.manifest, restored)
        if definition.id == self._definition.id:
            note("Start its workers with 'tidegate worker'.")
        else:
            note(f"Change the code to App({definition.id!r}), and start its workers with 'tidegate worker'.")

    def delete(self, name: str) -> None:
        self._storage.delete_savepoint(name)
        note(f"Deleted savepoint {name}.")

    # -- inspecting --------------------------------------------------------------------------------------------------
    def list(self, *, as_json: bool) -> None:
        storage = self._storage
        manifests = []
        for name in storage.savepoints():
            try:
                manifests.append(storage.manifest(name))
            except CheckpointError as error:
                note(f"{name}: {error}")
        manifests.sort(key=lambda manifest: manifest.completed_ms, reverse=True)
        rows = [_summary(manifest) for manifest in manifests]
        if as_json:
            print_json(rows)
        elif not rows:
            note(f"There are no savepoints in {storage.where('')}.")
        else:
            columns = ("name", "taken", "run", "size", "in flight", "services")
            print_table(columns, [_cells(row) for row in rows], right=("run", "size", "in flight"))

    async def show(self, name: str, *, as_json: bool) -> None:
        reader = await asyncio.to_thread(self.open, name)
        async with self._contents(reader) as contents:
            shown = {**_summary(reader.manifest), "where": reader.where, "tasks": _tasks(reader.manifest)}
            shown["states"] = _states(contents)
        if as_json:
            print_json(shown)
            return
        taken = _when(reader.manifest.completed_ms)
        note(f"{shown['name']} of {shown['app']}, run {shown['run']}, taken {taken}, {_size(shown['size'])}")
        note(f"in {reader.where}")
        print_table(
            ("task", "size", "in flight", "watermark", "positions"),
            [
                (t["task"], _size(t["size"]), str(t["in_flight"]), t["watermark"], t["positions"])
                for t in shown["tasks"]
            ],
            right=("size", "in flight"),
        )
        print_table(
            ("service", "state", "kind", "version", "keys"),
            [(s["service"], s["state"], s["kind"], str(s["version"]), f"{s['keys']:,}") for s in shown["states"]],
            right=("version", "keys"),
        )

    async def diff(self, one: str, other: str, *, keys: bool, as_json: bool) -> None:
        first, second = self.open(one), self.open(other)
        rows = []
        async with self._contents(first) as before, self._contents(second) as after:
            for what in differing_states(before, after):
                counted = dict.fromkeys(("added", "removed", "changed", "same"), 0)
                for found in differences(before, after, what):
                    counted["same" if found is None else found.change] += 1
                    if keys and found is not None:
                        write_lines([self._line(what, found)])
                rows.append({"service": what.service, "state": what.state, **counted})
        if keys:
            return
        if as_json:
            print_json(rows)
            return
        columns = ("service", "state", "added", "removed", "changed", "same")
        print_table(columns, [[_cell(row[name]) for name in columns] for row in rows], right=columns[2:])

    async def export(
        self, name: str, directory: Path, format_: Format, *, service: str | None, state: str | None
    ) -> None:
        reader = await asyncio.to_thread(self.open, name)
        await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
        async with self._contents(reader) as contents:
            if service is not None and service not in contents.services:
                raise UnknownNameError("service", service, contents.services, of="in this savepoint")
            chosen = [
                (owner, known)
                for owner in ([service] if service is not None else contents.services)
                for known in contents.schemas(owner)
                if state in (None, known)
            ]
            if not chosen:
                every = {known for owner in contents.services for known in contents.schemas(owner)}
                raise UnknownNameError("state", state or "", every, of="in this savepoint")
            for owner, known in chosen:
                with _bar(f"{owner}.{known}") as bar:
                    path, rows = await asyncio.to_thread(
                        export_state, contents, owner, known, directory, format_, bar.more
                    )
                note(f"{path}: {count(rows, 'row')}")

    # -- parts -------------------------------------------------------------------------------------------------------
    @asynccontextmanager
    async def _contents(self, reader: CheckpointReader) -> AsyncIterator[SavepointState]:
        with tempfile.TemporaryDirectory(prefix="tidegate-savepoint-") as scratch, _bar("fetching") as bar:
            fetched = open_savepoint_state(reader, Path(scratch) / "fetched", lambda done, total: bar.set(done, total))
            async with fetched as contents:
                bar.hide()
                yield contents

    def _line(self, what: StateDifference, found: Difference) -> dict[str, Any]:
        key_types = {service.name: service.key_type for service in self._definition.services}
        return {
            "service": what.service,
            "state": what.state,
            "key": json_key(found.key, key_types.get(what.service, str)),
            "change": found.change,
            "before": _values(found.before),
            "after": _values(found.after),
        }


def _values(entries: list[StateEntry]) -> Any:
    """One value, or the entries of a map and the items of a list by their keys."""
    if not entries:
        return None
    if len(entries) == 1 and not entries[0].sub:
        return json_bytes(entries[0].value)
    return {str(json_key(entry.sub)): json_bytes(entry.value) for entry in entries}


# ------------------------------------------------------------------------------------------------------- descriptions


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.id,
        "app": manifest.app,
        "run": manifest.run,
        "epoch": manifest.epoch,
        "taken_ms": manifest.completed_ms,
        "size": manifest.size,
        "in_flight": manifest.in_flight_records,
        "parallelism": manifest.parallelism,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    services = ", ".join(f"{name} × {tasks}" for name, tasks in row["parallelism"].items())
    return (row["name"], _when(row["taken_ms"]), row["run"], _size(row["size"]), f"{row['in_flight']:,}", services)


def _tasks(manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {
            "task": task.task,
            "size": task.size,
            "in_flight": task.in_flight_records,
            "watermark": "" if task.marker.watermark <= MIN_TIME else _when(task.marker.watermark),
            "positions": ", ".join(f"{name} {mark.position:,}" for name, mark in task.marker.inputs.items()),
        }
        for task in sorted(manifest.tasks, key=lambda task: (task.service, task.number))
    ]


def _states(contents: SavepointState) -> list[dict[str, Any]]:
    return [
        {
            "service": service,
            "state": state,
            "kind": schema.kind,
            "version": schema.version,
            "keys": sum(1 for _ in contents.keys(service, state)),
            "schema": schema.type,
        }
        for service in contents.services
        for state, schema in contents.schemas(service).items()
    ]


def _print_restored(app: str, manifest: Manifest, restored: RestoreResult) -> None:
    loaded = restored.loaded
    ended = f", and replaces run {restored.before}" if restored.before else ""
    note(f"Run {restored.run} of {app} starts from {manifest.id}{ended}.")
    if not restored.same_log:
        note("The savepoint is from another log: topics are read from the positions given with --start.")
    for service, was in restored.changed.items():
        note(f"{service}: {count(was, 'task')} before, {restored.parallelism[service]} now")
    for what in restored.dropped:
        note(f"Left out: {what}")
    note(
        f"Loaded {_size(loaded.bytes)} in {count(loaded.entries, 'entry').replace('entrys', 'entries')}, "
        f"{_size(loaded.moved)} of it into different tasks; {count(loaded.in_flight, 'record')} in flight."
    )


def _size(size: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


# ----------------------------------------------------------------------------------------------------------- progress


class _Bar:
    def __init__(self, progress: Progress, label: str) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=None)

    def set(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)

    def more(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def stage(self, what: str, done: int, total: int) -> None:
        self._progress.update(self._task, description=what, completed=done, total=total)

    def hide(self) -> None:
        self._progress.update(self._task, visible=False)


@contextmanager
def _bar(label: str) -> Iterator[_Bar]:
    """A progress bar, on a terminal only, that disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = stderr_console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield _Bar(progress, label)

"""The state in a savepoint: the stores of all tasks, downloaded and merged in the order of their keys."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.engine.keyed_state.schema_migration import recorded_schemas
from tidegate.engine.keyed_state.schema_plan import prefixes_of
from tidegate.errors import UnknownNameError
from tidegate.state.base import Store
from tidegate.state.layout import EXPIRY, operator_key, parse_keyed, prefix_range
from tidegate.state.map_keys import plain_subkey
from tidegate.state.schema import StateSchema

__all__ = ("SavepointState", "StateEntry", "fetch_stores", "open_savepoint_state")

_DOWNLOADS: Final = 4
"""Tasks that are downloaded concurrently."""

OnProgress = Callable[[int, int], None]
"""Called with the bytes downloaded, and the total."""


class StateEntry(NamedTuple):
    """One stored value: of a key, of a map's entry, of a list's item, or of a task (operator state)."""

    key: bytes
    sub: bytes
    value: bytes
    expires: int | None = None


async def fetch_stores(
    reader: CheckpointReader, directory: Path, opened: ExitStack, on_progress: OnProgress
) -> dict[str, Store]:
    """The stores of all tasks, every file verified. `opened` closes them."""
    stores: dict[str, Store] = {}
    done, total, slots = 0, max(1, reader.manifest.size), asyncio.Semaphore(_DOWNLOADS)

    async def fetch(task: TaskSnapshot) -> None:
        nonlocal done
        async with slots:
            store = await asyncio.to_thread(reader.open_store, task, directory / task.task)
        stores[task.task] = store
        opened.callback(store.close)
        done += task.size
        on_progress(done, total)

    try:
        async with asyncio.TaskGroup() as group:
            for task in reader.manifest.tasks:
                group.create_task(fetch(task))
    except* Exception as errors:
        raise errors.exceptions[0] from None
    return stores


@asynccontextmanager
async def open_savepoint_state(
    reader: CheckpointReader, directory: Path, on_progress: OnProgress
) -> AsyncIterator[SavepointState]:
    """`directory`: for the downloaded stores; it is removed at the end."""
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, directory, ignore_errors=True)
        yield SavepointState(reader, await fetch_stores(reader, directory, opened, on_progress))


class SavepointState:
    def __init__(self, reader: CheckpointReader, stores: dict[str, Store]) -> None:
        self.manifest, self._stores = reader.manifest, stores

    @property
    def services(self) -> list[str]:
        return sorted({task.service for task in self.manifest.tasks})

    def stores(self, service: str) -> list[Store]:
        tasks = sorted(self.manifest.tasks, key=lambda task: task.number)
        return [self._stores[task.task] for task in tasks if task.service == service]

    def schemas(self, service: str) -> dict[str, StateSchema]:
        """The schemas of a service's states, by name."""
        stores = self.stores(service)
        if not stores:
            raise UnknownNameError("service", service, self.services, of="in this savepoint")
        return recorded_schemas(stores[0])

    def entries(self, service: str, state: str) -> Iterator[StateEntry]:
        """All entries of a state in the order of the store's keys: by key group, then by key."""
        schema = self._schema(service, state)
        if schema.kind == "operator":
            store_key = operator_key(state, 0)
            found = ((number, store.get(store_key)) for number, store in enumerate(self.stores(service)))
            return (StateEntry(b"%d" % number, b"", raw) for number, raw in found if raw is not None)
        bounds = prefix_range(prefixes_of(state, schema.kind)[0])
        scans = [store.scan(*bounds) for store in self.stores(service)]
        ordered = schema.kind == "map" and schema.key_type != {"type": "bytes"}
        return (_entry(key, value, schema.ttl, ordered) for key, value in merge(*scans, key=itemgetter(0)))

    def keys(self, service: str, state: str) -> Iterator[tuple[bytes, list[StateEntry]]]:
        """Like `entries`, grouped by key."""
        for key, entries in groupby(self.entries(service, state), key=itemgetter(0)):
            yield key, list(entries)

    def _schema(self, service: str, state: str) -> StateSchema:
        schemas = self.schemas(service)
        if state not in schemas:
            raise UnknownNameError("state", state, schemas, of=f"of service {service!r} in this savepoint")
        return schemas[state]


def _entry(store_key: bytes, value: bytes, ttl: bool, ordered: bool) -> StateEntry:
    """`ordered`: a map's own keys may be stored in the order of keys."""
    _, _, key, sub = parse_keyed(store_key)
    if ordered:
        sub = plain_subkey(sub)
    if not ttl:
        return StateEntry(key, sub, value)
    return StateEntry(key, sub, value[EXPIRY.size :], EXPIRY.unpack_from(value)[0])

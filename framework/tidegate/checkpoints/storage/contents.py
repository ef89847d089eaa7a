"""What a savepoint holds, as state: fetched, open, and in the order of the stores' keys, whichever task had what."""

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
from tidegate.state.schema import StateSchema

__all__ = ("Contents", "Stored", "fetch_stores", "opened_contents")

_AT_ONCE: Final = 4
"""Tasks whose files are fetched at the same time."""

Tell = Callable[[int, int], None]
"""How many bytes are there, and of how many."""


class Stored(NamedTuple):
    """One stored value: of a key, of one entry of a map, one item of a list, or of a task."""

    key: bytes
    sub: bytes
    value: bytes
    expires: int | None = None


async def fetch_stores(reader: CheckpointReader, directory: Path, opened: ExitStack, tell: Tell) -> dict[str, Store]:
    """The stores of all tasks, every file checked. They are closed with `opened`."""
    stores: dict[str, Store] = {}
    done, total, room = 0, max(1, reader.manifest.size), asyncio.Semaphore(_AT_ONCE)

    async def fetch(task: TaskSnapshot) -> None:
        nonlocal done
        async with room:
            store = await asyncio.to_thread(reader.open_store, task, directory / task.task)
        stores[task.task] = store
        opened.callback(store.close)
        done += task.size
        tell(done, total)

    try:
        async with asyncio.TaskGroup() as group:
            for task in reader.manifest.tasks:
                group.create_task(fetch(task))
    except* Exception as errors:
        raise errors.exceptions[0] from None
    return stores


@asynccontextmanager
async def opened_contents(reader: CheckpointReader, directory: Path, tell: Tell) -> AsyncIterator[Contents]:
    """`directory`: for what is fetched; it is removed in the end."""
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, directory, ignore_errors=True)
        yield Contents(reader, await fetch_stores(reader, directory, opened, tell))


class Contents:
    def __init__(self, reader: CheckpointReader, stores: dict[str, Store]) -> None:
        self.manifest, self._stores = reader.manifest, stores

    @property
    def services(self) -> list[str]:
        return sorted({task.service for task in self.manifest.tasks})

    def stores(self, service: str) -> list[Store]:
        tasks = sorted(self.manifest.tasks, key=lambda task: task.number)
        return [self._stores[task.task] for task in tasks if task.service == service]

    def schemas(self, service: str) -> dict[str, StateSchema]:
        """Of the states of a service, by their names."""
        stores = self.stores(service)
        if not stores:
            raise UnknownNameError("service", service, self.services, of="in this savepoint")
        return recorded_schemas(stores[0])

    def entries(self, service: str, state: str) -> Iterator[Stored]:
        """In the order of the store's keys: by key group, then by key."""
        schema = self._schema(service, state)
        if schema.kind == "operator":
            place = operator_key(state, 0)
            found = ((number, store.get(place)) for number, store in enumerate(self.stores(service)))
            return (Stored(b"%d" % number, b"", raw) for number, raw in found if raw is not None)
        bounds = prefix_range(prefixes_of(state, schema.kind)[0])
        scans = [store.scan(*bounds) for store in self.stores(service)]
        return (_stored(key, value, ttl=schema.ttl) for key, value in merge(*scans, key=itemgetter(0)))

    def keys(self, service: str, state: str) -> Iterator[tuple[bytes, list[Stored]]]:
        """The same, all entries of a key together."""
        for key, entries in groupby(self.entries(service, state), key=itemgetter(0)):
            yield key, list(entries)

    def _schema(self, service: str, state: str) -> StateSchema:
        schemas = self.schemas(service)
        if state not in schemas:
            raise UnknownNameError("state", state, schemas, of=f"of service {service!r} in this savepoint")
        return schemas[state]


def _stored(entry: bytes, value: bytes, *, ttl: bool) -> Stored:
    _, _, key, sub = parse_keyed(entry)
    if not ttl:
        return Stored(key, sub, value)
    return Stored(key, sub, value[EXPIRY.size :], EXPIRY.unpack_from(value)[0])

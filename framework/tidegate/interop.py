"""The interface for other programs: formats of records and state, the embedded log, savepoints.

The Spark connector depends on this module alone, so that the engine's internals can change independently. Names are
loaded lazily: Spark starts a Python process per core, and most of them need few of these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.lazy import loader

if TYPE_CHECKING:
    from tidegate.checkpoints.storage.manifest import TaskSnapshot
    from tidegate.checkpoints.storage.reader import CheckpointReader, open_uri
    from tidegate.checkpoints.storage.writer import entry_writer, schemas_of, write_manifest, write_task
    from tidegate.directories import data_directory, on_kafka
    from tidegate.engine.processing.context import STAMP_HEADER
    from tidegate.engine.topology.plan import Plan
    from tidegate.host.app_definition import AppDefinition
    from tidegate.keys import encode_key, partition_of
    from tidegate.logs.base import Headers, TopicPartition
    from tidegate.logs.embedded.observer import LogObserver
    from tidegate.logs.kafka.connection.options import addresses_of
    from tidegate.state.declaration import StateDeclaration
    from tidegate.state.layout import EXPIRY, group_range, keyed_prefix, parse_tail
    from tidegate.state.map_keys import map_keys, plain_subkey

_HOMES = {
    "tidegate.checkpoints.storage.writer": ("entry_writer", "schemas_of", "write_manifest", "write_task"),
    "tidegate.checkpoints.storage.manifest": ("TaskSnapshot",),
    "tidegate.keys": ("encode_key", "partition_of"),
    "tidegate.checkpoints.storage.reader": ("CheckpointReader", "open_uri"),
    "tidegate.engine.processing.context": ("STAMP_HEADER",),
    "tidegate.logs.base": ("TopicPartition",),
    "tidegate.logs.embedded.observer": ("LogObserver",),
    "tidegate.logs.kafka.connection.options": ("addresses_of",),
    "tidegate.directories": ("data_directory", "on_kafka"),
    "tidegate.state.declaration": ("StateDeclaration",),
    "tidegate.state.layout": ("EXPIRY", "group_range", "keyed_prefix", "parse_tail"),
    "tidegate.state.map_keys": ("map_keys", "plain_subkey"),
}

__all__ = (
    "EXPIRY",
    "STAMP_HEADER",
    "CheckpointReader",
    "LogObserver",
    "StateDeclaration",
    "TaskSnapshot",
    "TopicPartition",
    "addresses_of",
    "append_records",
    "data_directory",
    "encode_key",
    "entry_writer",
    "group_range",
    "keyed_prefix",
    "load_plan",
    "map_keys",
    "observe",
    "on_kafka",
    "open_uri",
    "parse_tail",
    "partition_of",
    "plain_subkey",
    "schemas_of",
    "write_manifest",
    "write_task",
)


__getattr__ = loader(globals(), _HOMES)


def observe(directory: Path) -> LogObserver:
    """A read-only observer of the embedded log in an app's directory; not started yet."""
    from tidegate.logs.embedded.observer import LogObserver

    return LogObserver(directory)


async def load_plan(definition: AppDefinition, flags: Mapping[str, Any] | None) -> Plan:
    """The app's plan for its current run and the topics that exist in the log."""
    from tidegate.client.log_access import LogAccess

    access = LogAccess(definition, flags)
    async with access.observed() as observer:
        plan, _ = await access.load_plan(observer)
        return plan


async def append_records(
    definition: AppDefinition,
    flags: Mapping[str, Any] | None,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None, Headers]],
) -> None:
    """Append records (key, value, headers) to a topic in one transaction, through the owner of the log."""
    from tidegate.client.log_access import LogAccess
    from tidegate.keys import partition_of
    from tidegate.time.clock import SystemClock

    access, now = LogAccess(definition, flags), SystemClock().now()
    async with access.opened() as operations:
        await access.create_topics()
        count = (await access.plan()).topics[topic].partitions
        placed = [
            (partition_of(bytes(key or b""), count), key, value, now, list(headers)) for key, value, headers in records
        ]
        if placed:
            await operations.append(topic, placed)

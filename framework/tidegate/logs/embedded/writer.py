"""Appends transactions to the embedded log: checks records, assigns offsets, encodes blocks, and commits the group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tidegate.errors import FencedError, UsageError
from tidegate.logs.base import NewRecord, Records, TopicPartition
from tidegate.logs.embedded.blocks import block_key, encode_blocks
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.group_commit import GroupCommit
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.embedded.partition import Partition, PartitionAppend
from tidegate.logs.records import NewRecordColumns, check_keys, check_size

__all__ = ("EmbeddedWriter", "WriterLog")

Positions = Mapping[TopicPartition, int]

_YIELD_AFTER: Final = 4000
"""Records that are encoded before the writer yields to the event loop: about 2 ms."""


class WriterLog(Protocol):
    """The part of the log that a writer uses."""

    @property
    def group_commit(self) -> GroupCommit: ...
    @property
    def options(self) -> EmbeddedOptions: ...
    def partition(self, source: TopicPartition) -> Partition: ...
    @property
    def now(self) -> Callable[[], int]: ...
    def is_fenced(self, writer: EmbeddedWriter) -> bool: ...


class EmbeddedWriter:
    """A Writer into an EmbeddedLog."""

    def __init__(self, log: WriterLog, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self._log = log

    async def append(self, records: Records, then: Callable[[Positions], Records] | None = None) -> Positions:
        """1. Check, assign offsets and encode, yielding to the event loop in between. If a record is refused, nothing
           is written.
        2. Write the blocks atomically.
        3. Wait for the sync."""
        commits = self._log.group_commit
        async with commits.append_lock:
            if self._log.is_fenced(self):
                raise FencedError(self.transactional_id or "")
            transaction = _Transaction(self._log)
            await transaction.add(records)
            if then is not None:
                await transaction.add(then(dict(transaction.positions)))
            if not transaction.appends:
                return transaction.positions
            await commits.write(transaction.changes)
            done = commits.begin_sync(transaction.appends)
        await done
        return transaction.positions

    async def close(self) -> None:
        """Does nothing: a writer holds no resources."""


class _Transaction:
    """Blocks of a transaction that is not written yet."""

    def __init__(self, log: WriterLog) -> None:
        self.changes = Changes()
        self.appends: list[PartitionAppend] = []
        self.positions: dict[TopicPartition, int] = {}
        self._log = log
        self._now = log.now()
        self._encoded = 0

    async def add(self, records: Records) -> None:
        for source, new in records.items():
            if source in self.positions:
                raise UsageError(f"a transaction has {source} in both of its parts: their partitions must be disjoint")
            partition = self._log.partition(source)
            if partition.spec.compact:
                check_keys(source, new)
            self.positions[source] = partition.next_offset + len(new)
            if new:
                await self._add(partition, new)

    async def _add(self, partition: Partition, new: Sequence[NewRecord]) -> None:
        if partition.spec.append_time:
            new = [(key, value, self._now, headers) for key, value, _, headers in new]
        offsets, size = range(partition.next_offset, partition.next_offset + len(new)), 0
        for first, part, block in encode_blocks(NewRecordColumns.of(new), offsets, self._now, self._log.options):
            if len(part) == 1:
                check_size(partition.source.topic, part[0], self._log.options.max_record_bytes)
            self.changes.put(block_key(partition.block_prefix, first), block)
            size += len(block)
            self._encoded += len(part)
            if self._encoded >= _YIELD_AFTER:
                self._encoded = 0
                await asyncio.sleep(0)
        end = partition.next_offset + len(new) + 1  # a transaction uses up one offset, like a marker in Kafka
        self.appends.append(PartitionAppend(partition, end, len(new), size, self._now))

"""A transaction's way into the log: checked, given offsets, encoded into blocks, handed to the group commit."""

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
from tidegate.logs.embedded.partition import Partition, Touch
from tidegate.logs.records import Columns, check_keys, check_size

__all__ = ("EmbeddedWriter", "Owner")

Positions = Mapping[TopicPartition, int]

_BREATH: Final = 4000
"""Records that are encoded in one turn of the loop: about 2 ms."""


class Owner(Protocol):
    """What a writer needs of its log."""

    @property
    def commits(self) -> GroupCommit: ...
    @property
    def options(self) -> EmbeddedOptions: ...
    def partition(self, source: TopicPartition) -> Partition: ...
    @property
    def now(self) -> Callable[[], int]: ...
    def is_fenced(self, writer: EmbeddedWriter) -> bool: ...


class EmbeddedWriter:
    """A Writer into an EmbeddedLog."""

    def __init__(self, log: Owner, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self._log = log

    async def append(self, records: Records, then: Callable[[Positions], Records] | None = None) -> Positions:
        """1. Check, give out offsets, encode, with turns for others in between: nothing is kept of it if anything is
           refused.
        2. Write: from here on the transaction is there as a whole, or not at all.
        3. Wait for the sync."""
        commits = self._log.commits
        async with commits.order:
            if self._log.is_fenced(self):
                raise FencedError(self.transactional_id or "")
            transaction = _Transaction(self._log)
            await transaction.add(records)
            if then is not None:
                await transaction.add(then(dict(transaction.positions)))
            if not transaction.touches:
                return transaction.positions
            await commits.write(transaction.changes)
            done = commits.begin_sync(transaction.touches)
        await done
        return transaction.positions

    async def close(self) -> None:
        """Nothing is held: what was appended is the log's."""


class _Transaction:
    """Blocks with their offsets, not written yet."""

    def __init__(self, log: Owner) -> None:
        self.changes = Changes()
        self.touches: list[Touch] = []
        self.positions: dict[TopicPartition, int] = {}
        self._log = log
        self._now = log.now()
        self._encoded = 0

    async def add(self, records: Records) -> None:
        for source, new in records.items():
            if source in self.positions:
                raise UsageError(f"a transaction names {source} in both of its parts: they must be disjoint")
            partition = self._log.partition(source)
            if partition.spec.compact:
                check_keys(source, new)
            self.positions[source] = partition.next + len(new)
            if new:
                await self._add(partition, new)

    async def _add(self, partition: Partition, new: Sequence[NewRecord]) -> None:
        if partition.spec.append_time:
            new = [(key, value, self._now, headers) for key, value, _, headers in new]
        offsets, size = range(partition.next, partition.next + len(new)), 0
        for first, part, block in encode_blocks(Columns.of(new), offsets, self._now, self._log.options):
            if len(part) == 1:
                check_size(partition.source.topic, part[0], self._log.options.max_record_bytes)
            self.changes.put(block_key(partition.blocks, first), block)
            size += len(block)
            self._encoded += len(part)
            if self._encoded >= _BREATH:
                self._encoded = 0
                await asyncio.sleep(0)
        end = partition.next + len(new) + 1  # one offset is burnt, as by a transaction's marker in Kafka
        self.touches.append(Touch(partition, end, len(new), size, self._now))

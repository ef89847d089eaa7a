"""A transaction's way into the log: checked, given offsets, encoded into blocks, handed to the group commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rocksdict import WriteBatch

from tidegate.errors import FencedError, UsageError
from tidegate.logs.base import NewRecord, Records, TopicPartition
from tidegate.logs.embedded.blocks import Row, block_key, encode_blocks
from tidegate.logs.embedded.commit import GroupCommit, Touch
from tidegate.logs.embedded.options import EmbeddedOptions
from tidegate.logs.embedded.partition import Partition
from tidegate.logs.records import check_keys

__all__ = ("EmbeddedWriter", "Owner")

Positions = Mapping[TopicPartition, int]


class Owner(Protocol):
    """What a writer needs of its log."""

    @property
    def commits(self) -> GroupCommit: ...
    @property
    def options(self) -> EmbeddedOptions: ...
    def partition(self, source: TopicPartition) -> Partition: ...
    def now(self) -> int: ...
    def is_fenced(self, writer: EmbeddedWriter) -> bool: ...


class EmbeddedWriter:
    """A Writer into an EmbeddedLog."""

    def __init__(self, log: Owner, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self._log = log

    async def append(self, records: Records, then: Callable[[Positions], Records] | None = None) -> Positions:
        """1. Check, and give out offsets: nothing is kept of it if anything is refused.
        2. Write, then wait for the sync: from here on the transaction is whole, or gone."""
        if self._log.is_fenced(self):
            raise FencedError(self.transactional_id or "")
        self._log.commits.check()
        transaction = _Transaction(self._log)
        transaction.add(records)
        if then is not None:
            transaction.add(then(dict(transaction.positions)))
        if transaction.touches:
            await self._log.commits.commit(transaction.batch, transaction.touches)
        return transaction.positions

    async def close(self) -> None:
        """Nothing is held: what was appended is the log's."""


class _Transaction:
    """Blocks with their offsets, not written yet."""

    def __init__(self, log: Owner) -> None:
        self.batch = WriteBatch(raw_mode=True)
        self.touches: list[Touch] = []
        self.positions: dict[TopicPartition, int] = {}
        self._log = log
        self._now = log.now()

    def add(self, records: Records) -> None:
        for source, new in records.items():
            if source in self.positions:
                raise UsageError(f"a transaction names {source} in both of its parts: they must be disjoint")
            partition = self._log.partition(source)
            if partition.spec.compact:
                check_keys(source, new)
            self.positions[source] = partition.next + len(new)
            if new:
                self._add(partition, new)

    def _add(self, partition: Partition, new: Sequence[NewRecord]) -> None:
        for offset, block in encode_blocks(
            partition.source.topic, self._rows(partition, new), self._now, self._log.options
        ):
            self.batch.put(block_key(partition.blocks, offset), block)
        end = partition.next + len(new) + 1  # one offset is burnt, as by a transaction's marker in Kafka
        self.touches.append(Touch(partition, end))

    def _rows(self, partition: Partition, new: Sequence[NewRecord]) -> list[Row]:
        first = partition.next
        if partition.spec.append_time:
            now = self._now
            return [(offset, now, key, value, headers) for offset, (key, value, _, headers) in enumerate(new, first)]
        return [(offset, at, key, value, headers) for offset, (key, value, at, headers) in enumerate(new, first)]

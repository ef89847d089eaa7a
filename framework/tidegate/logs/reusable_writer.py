"""A writer that is reused for several appends: on Kafka, opening one costs one or two requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidegate.logs.base import Log, Records, TopicPartition, Writer

__all__ = ("ReusableWriter",)


class ReusableWriter:
    """Opens a writer on first use, serializes appends, and replaces the writer after an error."""

    def __init__(self, log: Log, transactional_id: str | None = None) -> None:
        self._log, self._id = log, transactional_id
        self._writer: Writer | None = None
        self._lock = asyncio.Lock()

    async def append(self, records: Records) -> Mapping[TopicPartition, int]:
        """See `Writer.append`; the caller may retry after an error."""
        async with self._lock:
            if self._writer is None:
                self._writer = await self._log.writer(self._id)
            try:
                return await self._writer.append(records)
            except BaseException:
                await self._drop()
                raise

    async def close(self) -> None:
        async with self._lock:
            await self._drop()

    async def _drop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

"""A writer that is kept: on Kafka a new one costs a request or two, on top of what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidegate.logs.base import Log, Records, TopicPartition, Writer

__all__ = ("ReusableWriter",)


class ReusableWriter:
    """Made when it is first needed, used by one at a time, and replaced after an error."""

    def __init__(self, log: Log, transactional_id: str | None = None) -> None:
        self._log, self._id = log, transactional_id
        self._writer: Writer | None = None
        self._turn = asyncio.Lock()

    async def append(self, records: Records) -> Mapping[TopicPartition, int]:
        """See `Writer.append`; after an error one may try again."""
        async with self._turn:
            if self._writer is None:
                self._writer = await self._log.writer(self._id)
            try:
                return await self._writer.append(records)
            except BaseException:
                await self._drop()
                raise

    async def close(self) -> None:
        async with self._turn:
            await self._drop()

    async def _drop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

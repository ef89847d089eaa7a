"""Idempotent requests: a retried request is executed once, on any worker, through crashes.

The result of a request is recorded under its idempotency key in an internal topic, in the same transaction as the
request's records. Keys are hashed into buckets, one per partition of that topic, each with its own transactional id:

1. A worker that writes to a bucket opens a writer with the bucket's transactional id. This fences all other writers and
   completes or aborts their open transactions.
2. It reads the bucket to its end. Until it is fenced, no other worker can append to the bucket.
3. A known key was executed: its recorded result is the answer. An unknown key is executed now, and its result is
   recorded in the same transaction.
4. A fenced writer has written nothing, and starts again at step 1.

Opening a writer takes much longer than writing. Workers therefore forward a request to the bucket's preferred writer
while that responds; any other worker may execute it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from tidegate.errors import FencedError, LogUnavailableError, RequestConflictError
from tidegate.keys import partition_of
from tidegate.logs.base import Log, Records, TopicPartition, TopicSpec, Writer
from tidegate.time.clock import Clock

__all__ = ("IdempotentRequests", "WriteResult", "bucket_of")

logger = logging.getLogger(__name__)

BUCKETS: Final = 8
KEPT_MS: Final = 24 * 3600 * 1000
"""The minimum time for which an idempotency key is remembered."""
_ATTEMPTS: Final = 20


def bucket_of(key: str) -> int:
    return partition_of(key.encode(), BUCKETS)


class Note(msgspec.Struct, frozen=True):
    """The recorded result of a request."""

    print: str
    """Fingerprint of the request's body: a different request must not reuse the key."""
    positions: dict[str, dict[int, int]]


class WriteResult(msgspec.Struct, frozen=True):
    positions: Mapping[str, Mapping[int, int]]
    """By topic and partition, the position after the last record."""
    again: bool
    """Nothing was written: an earlier request with this key was executed."""


class IdempotentRequests:
    def __init__(self, log: Log, app: str, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._topic = f"{app}.requests"
        self._buckets = [_Bucket(log, app, TopicPartition(self._topic, number)) for number in range(BUCKETS)]
        self._created = False

    async def write(self, key: str, body: bytes, records: Records) -> WriteResult:
        """Append the records in one transaction, unless a request with this key has done so."""
        await self._create()
        raw, fingerprint = key.encode(), sha256(body).hexdigest()
        bucket = self._buckets[bucket_of(key)]
        return await bucket.write(raw, fingerprint, records, self._clock.now())

    async def close(self) -> None:
        for bucket in self._buckets:
            await bucket.close()

    async def _create(self) -> None:
        if not self._created:
            spec = TopicSpec(name=self._topic, partitions=BUCKETS, retention_ms=KEPT_MS, internal=True)
            await self._log.create([spec])
            self._created = True


class _Bucket:
    def __init__(self, log: Log, app: str, source: TopicPartition) -> None:
        self._log, self._source = log, source
        self._id = f"{app}.requests.{source.partition}"
        self._writer: Writer | None = None
        self._notes: dict[bytes, tuple[int, Note]] = {}
        """By key, with the time of recording; the oldest first."""
        self._position: int | None = None
        self._lock = asyncio.Lock()

    async def write(self, key: bytes, fingerprint: str, records: Records, now: int) -> WriteResult:
        async with self._lock:
            for _ in range(_ATTEMPTS):
                if self._writer is None:
                    await self._open()
                self._forget(now - KEPT_MS)
                known = self._notes.get(key)
                if known is not None:
                    return _again(key, known[1], fingerprint)
                try:
                    return await self._append(key, fingerprint, records, now)
                except FencedError:
                    logger.info("another worker has fenced the writer %s; reopening it", self._id)
                    await self._drop()
                except BaseException:
                    await self._drop()
                    raise
        raise LogUnavailableError(f"other workers keep fencing the writer of {self._source}; retry the request")

    async def close(self) -> None:
        async with self._lock:
            await self._drop()

    async def _append(self, key: bytes, fingerprint: str, records: Records, now: int) -> WriteResult:
        assert self._writer is not None  # noqa: S101  it was opened
        note = Note(fingerprint, {})

        def then(positions: Mapping[TopicPartition, int]) -> Records:
            for (topic, number), at in positions.items():
                note.positions.setdefault(topic, {})[number] = at
            return {self._source: [(key, msgspec.json.encode(note), now, ())]}

        await self._writer.append(records, then)
        self._notes[key] = (now, note)
        return WriteResult(note.positions, again=False)

    async def _open(self) -> None:
        """Steps 1 and 2 of the protocol."""
        writer = await self._log.writer(self._id)
        try:
            await self._catch_up()
        except BaseException:
            await writer.close()
            raise
        self._writer = writer

    async def _catch_up(self) -> None:
        source = self._source
        start = (await self._log.start_offsets([source]))[source]
        end = (await self._log.end_offsets([source]))[source]
        reader = self._log.reader()
        try:
            reader.assign({source: max(start, self._position or 0)})
            while reader.position(source) < end:
                for batch in await reader.read(timeout=0.5):
                    for record in batch.records:
                        if record.key is not None and record.value is not None:
                            note = msgspec.json.decode(record.value, type=Note)
                            self._notes[record.key] = (record.timestamp, note)
            self._position = reader.position(source)
        finally:
            await reader.close()

    def _forget(self, before: int) -> None:
        while self._notes:
            key, (noted, _) = next(iter(self._notes.items()))
            if noted >= before:
                return
            del self._notes[key]

    async def _drop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()


def _again(key: bytes, note: Note, fingerprint: str) -> WriteResult:
    if note.print != fingerprint:
        raise RequestConflictError(key.decode())
    return WriteResult(note.positions, again=True)

"""Fetching ahead of what is read.

Each broker answers the requests of a connection one after the other, and a fetch that finds nothing waits there for a
while. So a reader has several *lanes* to each broker, connections of its own: a partition that has something to fetch
need not wait until the quiet ones give up. Any partition is in one request at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka import errors
from aiokafka.protocol.fetch import FetchRequest

from tidegate.errors import LogError, LogUnavailableError, UnknownTopicError
from tidegate.logs.base import LogRecord, TopicPartition
from tidegate.logs.kafka.connection.broker_errors import error_of, is_passing
from tidegate.logs.kafka.connection.cluster import READ_COMMITTED, Cluster
from tidegate.logs.kafka.fetched_records import FetchedRecords

__all__ = ("Fetcher", "Stream")

logger = logging.getLogger(__name__)

WAIT_MS: Final = 200
"""How long a broker holds a fetch that finds nothing."""
PARTITION_BYTES: Final = 1 << 20
"""How much is fetched of a partition at once, and how much is kept of it before more is fetched."""
REQUEST_BYTES: Final = 8 << 20
"""How much is fetched at once."""
AHEAD_BYTES: Final = 32 << 20
"""How much is fetched ahead over all partitions, besides one fetch of each."""
LANES: Final = 4
"""Connections to each broker at most; the last one is for partitions that are known to have something."""
BACKOFF: Final = (0.05, 1.0)
"""How long to wait after a broker did not answer, in seconds: at first, and at most."""


class Stream:
    """One partition from one position on. A new position is a new stream."""

    __slots__ = (
        "_decoded_to",
        "_surplus",
        "_taken",
        "buffered",
        "chunks",
        "end",
        "failure",
        "fetch_from",
        "fetching",
        "leader",
        "paused",
        "position",
        "source",
    )

    def __init__(self, source: TopicPartition, position: int) -> None:
        self.source = source
        self.position = position
        """The offset of the next record to be returned."""
        self.fetch_from = position
        self.end: int | None = None
        """The last stable offset, as of the last fetch."""
        self.paused = False
        self.fetching = False
        self.leader: int | None = None
        self.failure: Exception | None = None
        self.chunks: deque[FetchedRecords] = deque()
        self.buffered = 0
        self._decoded_to = position
        self._surplus: list[LogRecord] = []
        self._taken = 0

    @property
    def ready(self) -> bool:
        return bool(self.chunks) or self._taken < len(self._surplus)

    def add(self, chunk: FetchedRecords, end: int) -> None:
        self.end = end
        if chunk.next_offset is not None:
            self.fetch_from = chunk.next_offset
            self.chunks.append(chunk)
            self.buffered += chunk.size

    @property
    def behind(self) -> bool:
        """Whether there is certainly, or possibly, something to fetch right now."""
        return self.end is None or self.fetch_from < self.end

    def take(self, limit: int) -> Sequence[LogRecord]:
        """Up to so many records; the position moves past them, and past gaps even when there are none."""
        if self._taken >= len(self._surplus):
            self._decode(limit)
        records, taken = self._surplus, self._taken
        if taken or len(records) > limit:
            records = records[taken : taken + limit]
            self._taken = taken + len(records)
        else:
            self._surplus, self._taken = [], 0
        more = self._taken < len(self._surplus)
        self.position = self._surplus[self._taken].offset if more else self._decoded_to
        return records

    def _decode(self, wanted: int) -> None:
        """Decode batches until there is enough, or nothing more."""
        records: list[LogRecord] = []
        while len(records) < wanted and self.chunks:
            try:
                decoded = self.chunks[0].next(self._decoded_to)
            except (errors.KafkaError, LogError) as error:
                self.failure = error
                self.chunks.clear()
                self.buffered = 0
                break
            if decoded is None:
                self.buffered -= self.chunks.popleft().size
                continue
            more, self._decoded_to = decoded
            if records:
                records += more
            else:
                records = more
        if self.chunks and self.chunks[0].empty:
            self.buffered -= self.chunks.popleft().size
        self._surplus, self._taken = records, 0


class Fetcher:
    """Keeps requests under way for the streams of one reader."""

    def __init__(self, cluster: Cluster, number: int, streams: Mapping[TopicPartition, Stream]) -> None:
        self._cluster, self._number, self._streams = cluster, number, streams
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[tuple[int, int]] = set()
        """The lanes, node and number, that have a request under way."""
        self._backoff = BACKOFF[0]
        self._waiting: asyncio.Future[None] | None = None
        self.failure: BaseException | None = None
        """What nobody has reckoned with."""

    async def wait(self, timeout: float) -> None:
        """Wait until something was fetched, or has changed."""
        waiting = self._waiting = asyncio.get_running_loop().create_future()
        await asyncio.wait((waiting,), timeout=timeout)
        self._waiting = None

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in range(LANES):
            await self._cluster.hang_up(("read", self._number, lane))

    # -- asking -------------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Send out requests for all that can be fetched."""
        by_leader: dict[int, list[Stream]] = {}
        lost: list[Stream] = []
        ahead = sum([stream.buffered for stream in self._streams.values()])
        for stream in self._streams.values():
            if stream.fetching or stream.paused or stream.failure is not None:
                continue
            if stream.buffered and (stream.buffered >= PARTITION_BYTES or ahead >= AHEAD_BYTES):
                continue
            if stream.leader is None:
                stream.leader = self._cluster.leader(stream.source)
            if stream.leader is None:
                lost.append(stream)
            else:
                by_leader.setdefault(stream.leader, []).append(stream)
        for node, streams in by_leader.items():
            self._send(node, streams)
        if lost:
            self._find(lost, after=0)

    def _send(self, node: int, streams: list[Stream]) -> None:
        free = next((lane for lane in range(LANES) if (node, lane) not in self._busy), None)
        if free == LANES - 1:
            streams = [stream for stream in streams if stream.behind]
        if free is not None and streams:
            for stream in streams:
                stream.fetching = True
            self._busy.add((node, free))
            self._start(self._fetch(node, free, streams))

    async def _fetch(self, node: int, lane: int, streams: Sequence[Stream]) -> None:
        asked = {stream.source: stream for stream in streams}
        failed: Sequence[Stream] = streams
        try:
            response = await self._cluster.send(node, _request(streams), ("read", self._number, lane))
            failed = self._receive(response, asked)
        except errors.KafkaError as error:
            logger.debug("fetching from broker %d: %s", node, error)
        finally:
            self._busy.discard((node, lane))
            for stream in streams:
                stream.fetching = False
        if failed:
            self._find(failed, after=self._backoff)
            self._backoff = min(self._backoff * 2, BACKOFF[1])
        else:
            self._backoff = BACKOFF[0]
        self.go_on()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = error
            self.wake()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _receive(self, response: Any, asked: Mapping[TopicPartition, Stream]) -> list[Stream]:
        """Keep what was fetched. Returns the streams to be tried again, with another leader perhaps."""
        failed: list[Stream] = []
        for topic, partitions in response.topics:
            for number, code, _, end, *details, raw in partitions:
                stream = asked[TopicPartition(topic, number)]
                if code:
                    self._fail(stream, error_of(code, stream.source), failed)
                elif self._streams.get(stream.source) is stream:
                    aborted = details[1 if response.API_VERSION >= 5 else 0]
                    stream.add(FetchedRecords(raw, aborted), end)
                    if raw:
                        self.wake()
        return failed

    def _fail(self, stream: Stream, error: errors.KafkaError | None, failed: list[Stream]) -> None:
        if error is not None and not is_passing(error):
            stream.failure = error
            self.wake()
        else:
            failed.append(stream)

    # -- leaders ------------------------------------------------------------------------------------------------------

    def _find(self, streams: Iterable[Stream], *, after: float) -> None:
        """Find out who leads partitions now; nothing is fetched of them until then."""
        lost = [stream for stream in streams if self._streams.get(stream.source) is stream]
        for stream in lost:
            stream.fetching, stream.leader = True, None
        self._start(self._find_leaders(lost, after))

    async def _find_leaders(self, streams: Sequence[Stream], after: float) -> None:
        try:
            if after:
                await asyncio.sleep(after)
                await self._cluster.refresh()
            for stream in streams:
                try:
                    await self._cluster.know([stream.source])
                except UnknownTopicError as error:
                    stream.failure = error
                    self._cluster.forget([stream.source.topic])
                    self.wake()
                except LogUnavailableError:
                    pass  # it is asked again
        finally:
            for stream in streams:
                stream.fetching = False
        self.go_on()


def _request(streams: Iterable[Stream]) -> FetchRequest:
    topics: dict[str, list[tuple[int, int, int]]] = {}
    for stream in streams:
        topic, number = stream.source
        topics.setdefault(topic, []).append((number, stream.fetch_from, PARTITION_BYTES))
    return FetchRequest(WAIT_MS, 1, REQUEST_BYTES, READ_COMMITTED, list(topics.items()))

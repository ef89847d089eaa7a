"""Prefetches records for one reader.

A broker answers the requests of a connection in order, and holds a fetch without records for a while (long polling). So
a reader has several *lanes*, that is connections, to each broker: partitions with records need not wait behind a long
poll of quiet ones. A partition is in one request at a time.
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
from tidegate.logs.kafka.connection.broker_errors import error_of, is_retriable
from tidegate.logs.kafka.connection.cluster import READ_COMMITTED, Cluster
from tidegate.logs.kafka.fetched_records import FetchedRecords

__all__ = ("Fetcher", "Stream")

logger = logging.getLogger(__name__)

WAIT_MS: Final = 200
"""How long a broker holds a fetch that finds no records."""
PARTITION_BYTES: Final = 1 << 20
"""Limit per partition: of one fetch, and of the buffered bytes below which it is fetched again."""
REQUEST_BYTES: Final = 8 << 20
"""Limit of one fetch."""
PREFETCH_BYTES: Final = 32 << 20
"""Limit of the buffered bytes of all partitions, besides one fetch of each."""
LANES: Final = 4
"""Most connections to each broker; the last one is reserved for partitions that have records."""
BACKOFF: Final = (0.05, 1.0)
"""Seconds to wait after a failed fetch: at first, and at most."""


class Stream:
    """The fetched records of one partition from a position on. A new position creates a new stream."""

    __slots__ = (
        "_decoded",
        "_decoded_to",
        "_returned",
        "buffered",
        "end",
        "failure",
        "fetch_from",
        "fetched",
        "fetching",
        "leader",
        "paused",
        "position",
        "source",
    )

    def __init__(self, source: TopicPartition, position: int) -> None:
        self.source = source
        self.position = position
        """The offset of the next record to return."""
        self.fetch_from = position
        self.end: int | None = None
        """The last stable offset, as of the last fetch."""
        self.paused = False
        self.fetching = False
        self.leader: int | None = None
        self.failure: Exception | None = None
        self.fetched: deque[FetchedRecords] = deque()
        self.buffered = 0
        self._decoded_to = position
        self._decoded: list[LogRecord] = []
        self._returned = 0

    @property
    def ready(self) -> bool:
        return bool(self.fetched) or self._returned < len(self._decoded)

    def add(self, fetched: FetchedRecords, end: int) -> None:
        self.end = end
        if fetched.next_offset is not None:
            self.fetch_from = fetched.next_offset
            self.fetched.append(fetched)
            self.buffered += fetched.size

    @property
    def behind(self) -> bool:
        """Whether the broker may have records to fetch right now."""
        return self.end is None or self.fetch_from < self.end

    def take(self, limit: int) -> Sequence[LogRecord]:
        """Up to `limit` records. The position advances past them, and past gaps even when there are none."""
        if self._returned >= len(self._decoded):
            self._decode(limit)
        records, returned = self._decoded, self._returned
        if returned or len(records) > limit:
            records = records[returned : returned + limit]
            self._returned = returned + len(records)
        else:
            self._decoded, self._returned = [], 0
        more = self._returned < len(self._decoded)
        self.position = self._decoded[self._returned].offset if more else self._decoded_to
        return records

    def _decode(self, wanted: int) -> None:
        """Decode batches until there are enough records, or no more batches."""
        records: list[LogRecord] = []
        while len(records) < wanted and self.fetched:
            try:
                decoded = self.fetched[0].next(self._decoded_to)
            except (errors.KafkaError, LogError) as error:
                self.failure = error
                self.fetched.clear()
                self.buffered = 0
                break
            if decoded is None:
                self.buffered -= self.fetched.popleft().size
                continue
            more, self._decoded_to = decoded
            if records:
                records += more
            else:
                records = more
        if self.fetched and self.fetched[0].empty:
            self.buffered -= self.fetched.popleft().size
        self._decoded, self._returned = records, 0


class Fetcher:
    """Sends fetches for the streams of one reader, and hands the responses to them."""

    def __init__(self, cluster: Cluster, number: int, streams: Mapping[TopicPartition, Stream]) -> None:
        self._cluster, self._number, self._streams = cluster, number, streams
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[tuple[int, int]] = set()
        """Node and number of the lanes that have a request under way."""
        self._backoff = BACKOFF[0]
        self._waiting: asyncio.Future[None] | None = None
        self.failure: BaseException | None = None
        """An unexpected error of a fetch."""

    async def wait(self, timeout: float) -> None:
        """Wait until records were fetched, or the assignment has changed."""
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
            await self._cluster.close_lane(("read", self._number, lane))

    # -- requests -----------------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Send fetches for all streams that have room in their buffers."""
        by_leader: dict[int, list[Stream]] = {}
        leaderless: list[Stream] = []
        ahead = sum([stream.buffered for stream in self._streams.values()])
        for stream in self._streams.values():
            if stream.fetching or stream.paused or stream.failure is not None:
                continue
            if stream.buffered and (stream.buffered >= PARTITION_BYTES or ahead >= PREFETCH_BYTES):
                continue
            if stream.leader is None:
                stream.leader = self._cluster.leader(stream.source)
            if stream.leader is None:
                leaderless.append(stream)
            else:
                by_leader.setdefault(stream.leader, []).append(stream)
        for node, streams in by_leader.items():
            self._send(node, streams)
        if leaderless:
            self._look_up_leaders(leaderless, after=0)

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
        requested = {stream.source: stream for stream in streams}
        failed: Sequence[Stream] = streams
        try:
            response = await self._cluster.send(node, _request(streams), ("read", self._number, lane))
            failed = self._receive(response, requested)
        except errors.KafkaError as error:
            logger.debug("fetching from broker %d: %s", node, error)
        finally:
            self._busy.discard((node, lane))
            for stream in streams:
                stream.fetching = False
        if failed:
            self._look_up_leaders(failed, after=self._backoff)
            self._backoff = min(self._backoff * 2, BACKOFF[1])
        else:
            self._backoff = BACKOFF[0]
        self.fetch()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = error
            self.wake()

    # -- responses ----------------------------------------------------------------------------------------------------

    def _receive(self, response: Any, requested: Mapping[TopicPartition, Stream]) -> list[Stream]:
        """Buffer the fetched records. Returns the streams to retry, perhaps at another leader."""
        failed: list[Stream] = []
        for topic, partitions in response.topics:
            for number, code, _, end, *details, raw in partitions:
                stream = requested[TopicPartition(topic, number)]
                if code:
                    self._fail(stream, error_of(code, stream.source), failed)
                elif self._streams.get(stream.source) is stream:
                    aborted = details[1 if response.API_VERSION >= 5 else 0]
                    stream.add(FetchedRecords(raw, aborted), end)
                    if raw:
                        self.wake()
        return failed

    def _fail(self, stream: Stream, error: errors.KafkaError | None, failed: list[Stream]) -> None:
        if error is not None and not is_retriable(error):
            stream.failure = error
            self.wake()
        else:
            failed.append(stream)

    # -- leaders ------------------------------------------------------------------------------------------------------

    def _look_up_leaders(self, streams: Iterable[Stream], *, after: float) -> None:
        """Look up the leaders of partitions, which are not fetched until then."""
        current = [stream for stream in streams if self._streams.get(stream.source) is stream]
        for stream in current:
            stream.fetching, stream.leader = True, None
        self._start(self._find_leaders(current, after))

    async def _find_leaders(self, streams: Sequence[Stream], after: float) -> None:
        try:
            if after:
                await asyncio.sleep(after)
                await self._cluster.refresh()
            for stream in streams:
                try:
                    await self._cluster.track([stream.source])
                except UnknownTopicError as error:
                    stream.failure = error
                    self._cluster.untrack([stream.source.topic])
                    self.wake()
                except LogUnavailableError:
                    pass  # `fetch` looks it up again
        finally:
            for stream in streams:
                stream.fetching = False
        self.fetch()


def _request(streams: Iterable[Stream]) -> FetchRequest:
    topics: dict[str, list[tuple[int, int, int]]] = {}
    for stream in streams:
        topic, number = stream.source
        topics.setdefault(topic, []).append((number, stream.fetch_from, PARTITION_BYTES))
    return FetchRequest(WAIT_MS, 1, REQUEST_BYTES, READ_COMMITTED, list(topics.items()))

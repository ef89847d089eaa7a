"""Generates realistic likes: popular people get more likes, some are liked back, now or weeks later, some tap twice,
and some likes arrive days late. Event time runs much faster than the clock, so that months pass while one watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from random import Random
from typing import Any

from examples.tinder_match.events import DAY, LATE, Like
from examples.tinder_match.people import Population
from tidegate.logs.base import Log, TopicPartition

__all__ = ("SPEED", "Generator", "LikeStream", "Origin", "find_origin")

SPEED = 12 * 3600
"""Seconds of event time per second of real time: a month in a minute."""

_HOUR = DAY // 24
_BEGINNING = round(datetime(2024, 2, 14, tzinfo=UTC).timestamp() * 1000)
_ANSWERED = 0.32
"""How many likes are returned, sooner or later."""
_REPEATED = 0.04
_LATE = 0.03
_TICK = 0.1
"""Seconds between two batches."""
_TAIL = 1000
"""How many offsets at the end of a partition are read to find the stream's position: far more than could all be late
likes."""


@dataclass(frozen=True)
class Origin:
    """The position at which a stream continues."""

    number: int = 0
    """Of the last like."""
    at: int = _BEGINNING
    """Event time."""


async def find_origin(log: Log, topic: str, decode: Callable[[bytes], Like]) -> Origin:
    """After the last like in the log: numbers are unique, and time does not go back."""
    partitions = (await log.topics())[topic].partitions
    sources = [TopicPartition(topic, number) for number in range(partitions)]
    starts, ends = await log.start_offsets(sources), await log.end_offsets(sources)
    positions = {source: max(starts[source], end - _TAIL) for source, end in ends.items()}
    number, at = Origin().number, Origin().at
    reader = log.reader()
    reader.assign(positions)
    try:
        while any(reader.position(source) < end for source, end in ends.items()):
            for batch in await reader.read(timeout=1.0):
                for like in (decode(record.value) for record in batch.records if record.value is not None):
                    number, at = max(number, _number_of(like)), max(at, like.at)
    finally:
        await reader.close()
    return Origin(number, at)


def _number_of(like: Like) -> int:
    """0: sent by another program."""
    return int(like.id) if like.id.isdecimal() else 0


class LikeStream:
    """An endless stream, deterministic for a seed and an origin."""

    def __init__(self, seed: int, origin: Origin) -> None:
        self._random = Random(f"{seed}:{origin.number}")
        self.number, self.at = origin.number, origin.at
        """Of the last like; and how far event time has come."""
        self._people = Population(self._random)
        self._coming: list[tuple[int, int, str, str]] = []
        """Arrival time, event time, giver, receiver."""

    def next(self, count: int, span: int) -> list[Like]:
        """`count` likes, or a few more, which arrive within the next `span` ms of event time."""
        start, self.at = self.at, self.at + span
        self._people.move_to(self.at)
        arrived: list[tuple[int, int, str, str]] = []
        while self._coming and self._coming[0][0] <= self.at:
            arrived.append(heappop(self._coming))
        while len(arrived) < count:
            at = self._random.randint(start, self.at)
            self._give(at, *self._people.pick(), arrived)
        return [self._like(at, liker, liked) for _, at, liker, liked in sorted(arrived)]

    def _give(self, at: int, liker: str, liked: str, arrived: list[tuple[int, int, str, str]]) -> None:
        """A new like: it arrives now or late, and may be repeated and answered."""
        chance = self._random.random
        if chance() < _LATE:
            late = round(chance() * LATE * 0.6)
            heappush(self._coming, (at + late, at, liker, liked))
        else:
            arrived.append((at, at, liker, liked))
        if chance() < _REPEATED:
            again = at + round(chance() * DAY)
            heappush(self._coming, (again, again, liker, liked))
        if chance() < _ANSWERED:
            # Most answer within a day; one in thirty only when the other one's like is long forgotten.
            wait = min(self._random.paretovariate(0.7) * 4 * _HOUR, 90 * DAY)
            heappush(self._coming, (at + round(wait), at + round(wait), liked, liker))

    def _like(self, at: int, liker: str, liked: str) -> Like:
        self.number += 1
        return Like(id=str(self.number), liker=liker, liked=liked, at=at)


class Generator:
    """Sends a stream at a steady rate, in small batches, until it is stopped."""

    def __init__(self, stream: LikeStream, send_many: Callable[[list[Like]], Awaitable[Any]], *, rate: float) -> None:
        self.stream, self._send_many, self._rate = stream, send_many, rate
        self._stopping = asyncio.Event()
        self.sent = 0
        """Likes that are durably in the log."""

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopping.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        last, owed = loop.time(), 0.0
        while not self._stopping.is_set():
            now = loop.time()
            passed, last = min(now - last, 1.0), now  # after a suspension of the machine, missed likes are not sent
            owed += passed * self._rate
            batch = self.stream.next(int(owed), round(passed * SPEED * 1000))
            owed -= int(owed)
            if batch:
                await self._send_many(batch)
                self.sent += len(batch)
            await self._pause(max(0.0, now + _TICK - loop.time()))

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

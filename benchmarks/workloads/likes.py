"""W on Kafka: a counter per key, an output for every second event of a key."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from benchmarks.workloads.base import Verdict
from benchmarks.workloads.events import Count, Event, likes_of
from tidegate.keys import partition_of

__all__ = ("Likes", "LikesCheck")

# The first second of a run fills caches; it is left out if the run is long enough.
_LEFT_OUT = 1.0
_LONG_ENOUGH = 5.0

# When a run is ended before its end, outputs may be under way; what was appended so long before must be complete.
_UNDER_WAY = 3.0


@dataclass
class Likes:
    """The input of W, and the expected output of every event."""

    events: int
    keys: int
    partitions: int
    start: int
    """The time of the first event, in ms."""
    kind: str = field(default="w", init=False)

    @property
    def topic(self) -> str:
        return f"likes-{self.events}-{self.partitions}"

    def stream(self) -> Iterator[Event]:
        return likes_of(self.events, self.keys, start=self.start)

    @cached_property
    def homes(self) -> list[int]:
        """The partition of each key, by the key's number."""
        return [partition_of(b"user-%d" % number, self.partitions) for number in range(self.keys)]

    @cached_property
    def order(self) -> list[array[int]]:
        """For each partition, the numbers of the keys of its events, in order."""
        order = [array("I") for _ in range(self.partitions)]
        for key, _, _ in self.stream():
            number = int(key[5:])
            order[self.homes[number]].append(number)
        return order

    @cached_property
    def emitting(self) -> list[array[int]]:
        """For each partition, how many events are handled when its 1st, 2nd, ... output is made."""
        seen = bytearray(self.keys)
        places = []
        for numbers in self.order:
            found = array("I")
            for place, number in enumerate(numbers, 1):
                seen[number] ^= 1
                if not seen[number]:
                    found.append(place)
            places.append(found)
        return places

    @property
    def least_outputs(self) -> int:
        return sum(map(len, self.emitting))

    def check(self, *, clock: bool) -> LikesCheck:
        return LikesCheck(self)


class LikesCheck:
    """Each key's outputs must be 2, 4, 6, ...: none missing, none twice, none out of order."""

    def __init__(self, likes: Likes) -> None:
        self._likes = likes
        self._last = [0] * likes.keys
        self._problem = ""
        self._outputs = 0
        # How many outputs of an input partition were appended in a millisecond.
        self._appended: dict[tuple[int, int], int] = defaultdict(int)

    def take(self, records: Iterable[Any]) -> None:
        decode, last, appended, homes = (
            msgspec.json.Decoder(Count).decode,
            self._last,
            self._appended,
            self._likes.homes,
        )
        for record in records:
            count = decode(record.value)
            number = int(count.who[5:])
            if count.n != last[number] + 2:
                self._problem = self._problem or f"{count.who}: {count.n} came after {last[number]}"
            last[number] = count.n
            appended[record.timestamp, homes[number]] += 1
            self._outputs += 1

    def verdict(self, *, stopped: float | None) -> Verdict:
        if not self._outputs:
            return Verdict(complete=False, problem="no output", outputs=0, handled=0, rate=0, start=0, end=0)
        times = sorted(moment for moment, _ in self._appended)
        first, last = times[0] / 1000, times[-1] / 1000
        handled = self._progress(last)
        complete = handled == [places[-1] if places else 0 for places in self._likes.emitting]
        cut = last if stopped is None else min(last, stopped - _UNDER_WAY)
        problem = self._problem or self._missing(self._progress(cut))
        if not complete and stopped is None:
            problem = problem or f"{self._outputs} outputs, {self._likes.least_outputs} expected"
        begin = first + _LEFT_OUT if last - first > _LONG_ENOUGH else first
        total = self._likes.events if complete else sum(handled)
        return Verdict(
            complete=complete,
            problem=problem,
            outputs=self._outputs,
            handled=total,
            rate=(total - sum(self._progress(begin))) / max(last - begin, 0.001),
            start=begin,
            end=last,
        )

    def _progress(self, moment: float) -> list[int]:
        """How many events of each partition were handled when the outputs appended until then had been made."""
        counts = [0] * self._likes.partitions
        for (at, partition), outputs in self._appended.items():
            if at <= moment * 1000:
                counts[partition] += outputs
        pairs = zip(self._likes.emitting, counts, strict=True)
        return [places[min(count, len(places)) - 1] if count else 0 for places, count in pairs]

    def _missing(self, handled: list[int]) -> str:
        """Check that every output of this many events per partition is present."""
        expected: dict[int, int] = defaultdict(int)
        for numbers, length in zip(self._likes.order, handled, strict=True):
            for number in numbers[:length]:
                expected[number] += 1
        for number, events in expected.items():
            if self._last[number] < events - events % 2:
                return f"user-{number}: {self._last[number]} is the last count, {events - events % 2} is missing"
        return ""

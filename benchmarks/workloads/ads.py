"""Yahoo's streaming benchmark: ad events → views → their campaign → a count per campaign and 10 s of event time.

Besides a window's last count, marked final, the counts that changed go out every second.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from benchmarks.workloads.base import Verdict
from benchmarks.workloads.events import Counted, Event

__all__ = ("GRACE", "WINDOW", "Ads", "AdsCheck", "campaigns")

WINDOW = 10_000
GRACE = 60_000
"""A window closes when event time is this many ms past its end. Peers that use the highest timestamp seen as event time
need it: after a shuffle, events of partitions that were read faster arrive first."""

_CAMPAIGNS, _ADS, _USERS = 100, 1000, 100_000
_KINDS = ("view", "click", "purchase")

# the part of a run that the rate is computed from: without its start and its end
_FROM, _TO = 0.05, 0.95


def campaigns() -> dict[str, str]:
    """The campaign of each ad: the static side of the join."""
    return {f"ad-{number}": f"campaign-{number % _CAMPAIGNS}" for number in range(_ADS)}


@dataclass
class Ads:
    """The input, a thousand events per second of event time, and the expected counts."""

    events: int
    partitions: int
    start: int
    kind: str = field(default="yahoo", init=False)

    def __post_init__(self) -> None:
        self.start -= self.start % WINDOW

    @property
    def topic(self) -> str:
        return f"ads-{self.events}-{self.partitions}"

    def _numbers(self) -> Iterator[tuple[int, int, int, int]]:
        rng = random.Random(7)
        for number in range(self.events):
            dice = rng.randrange(_USERS * _ADS * len(_KINDS))
            yield number, dice % _USERS, dice // _USERS % _ADS, dice // (_USERS * _ADS)

    def stream(self) -> Iterator[Event]:
        for number, user, ad, kind in self._numbers():
            at = self.start + number
            yield (
                b"user-%d" % user,
                b'{"user_id":"user-%d","page_id":"page-%d","ad_id":"ad-%d","ad_type":"banner","event_type":"%s",'
                b'"event_time":%d,"ip_address":"10.0.%d.%d"}'
                % (user, number % 1009, ad, _KINDS[kind].encode(), at, user % 256, ad % 256),
                at,
            )

    @cached_property
    def counts(self) -> dict[tuple[str, int], int]:
        """The expected counts, by campaign and window."""
        counts: dict[tuple[str, int], int] = defaultdict(int)
        for number, _, ad, kind in self._numbers():
            if kind == 0:
                counts[f"campaign-{ad % _CAMPAIGNS}", self.start + number - number % WINDOW] += 1
        return dict(counts)

    @cached_property
    def views(self) -> int:
        return sum(self.counts.values())

    @cached_property
    def closing(self) -> set[tuple[str, int]]:
        """The windows that must have closed when all events are handled, independent of the last events of the
        partitions."""
        time = self.start + self.events - GRACE - 2 * WINDOW
        return {item for item in self.counts if item[1] + WINDOW <= time}

    @property
    def least_outputs(self) -> int:
        return len(self.counts)

    def check(self, *, clock: bool) -> AdsCheck:
        return AdsCheck(self, clock=clock)


class AdsCheck:
    """Counts only grow; the final one comes once, and is exact; at the end the last one of each window is exact."""

    def __init__(self, ads: Ads, *, clock: bool) -> None:
        """clock: otherwise the last counts of windows that did not close need not be there."""
        self._ads, self._clock = ads, clock
        self._counts: dict[tuple[str, int], int] = {}
        self._final: set[tuple[str, int]] = set()
        self._steps: list[tuple[int, int]] = []
        self._outputs = 0
        self._problem = ""

    def take(self, records: Iterable[Any]) -> None:
        decode = msgspec.json.Decoder(Counted).decode
        for record in records:
            counted = decode(record.value)
            self._problem = self._problem or self._fault(counted)
            item = counted.campaign, counted.window
            self._steps.append((record.timestamp, counted.count - self._counts.get(item, 0)))
            self._counts[item] = counted.count
            if counted.last:
                self._final.add(item)
            self._outputs += 1

    def _fault(self, counted: Counted) -> str:
        item = counted.campaign, counted.window
        label = f"{counted.campaign} at {counted.window}"
        expected = self._ads.counts.get(item, 0)
        if item in self._final:
            return f"{label}: {counted.count} came after the final count"
        if counted.count < self._counts.get(item, 0):
            return f"{label}: {counted.count} came after {self._counts[item]}"
        if counted.count > expected or (counted.last and counted.count != expected):
            return f"{label}: counted {counted.count}{' finally' * counted.last}, there are {expected}"
        return ""

    def verdict(self, *, stopped: float | None) -> Verdict:
        counted = sum(self._counts.values())
        complete = self._counts == self._ads.counts if self._clock else self._final >= self._ads.closing
        share = self._ads.events / self._ads.views
        problem = self._problem
        if not self._outputs:
            problem = "no output"
        elif not complete and stopped is None:
            problem = problem or f"{counted} views counted, {self._ads.views} expected"
        elif complete and (missing := self._ads.closing - self._final):
            problem = problem or f"{len(missing)} windows did not close, {min(missing)} is one"
        elif not self._final and counted * share > GRACE + 3 * WINDOW:  # an event is a millisecond of event time
            problem = problem or "no window closed before the run was ended"
        rate, start, end = self._slope(counted)
        return Verdict(
            complete=complete,
            problem=problem,
            outputs=self._outputs,
            handled=round(counted * share),
            rate=rate * share,
            start=start,
            end=end,
        )

    def _slope(self, counted: int) -> tuple[float, float, float]:
        """Views per second: the line through the sums of the current counts, by least squares."""
        points: list[tuple[float, int]] = []
        total = 0
        for moment, step in sorted(self._steps):
            total += step
            if _FROM * counted <= total <= _TO * counted:
                points.append((moment / 1000, total))
        if len({moment for moment, _ in points}) < 2:
            return 0.0, 0.0, 0.0
        mean_time = sum(moment for moment, _ in points) / len(points)
        mean_total = sum(total for _, total in points) / len(points)
        above = sum((moment - mean_time) * (total - mean_total) for moment, total in points)
        below = sum((moment - mean_time) ** 2 for moment, _ in points)
        return above / below, points[0][0], points[-1][0]

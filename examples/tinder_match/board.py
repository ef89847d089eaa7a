"""The data of the screen: sampled once a second from the log and the engine, not from the handlers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

from examples.tinder_match.app import inbox, matches, matchmaker
from examples.tinder_match.check import read_inbox
from examples.tinder_match.events import Match
from examples.tinder_match.fold import Inbox
from examples.tinder_match.generator import Generator
from tidegate.errors import LogError
from tidegate.host.host import Host
from tidegate.logs.base import TopicPartition
from tidegate.query.key_count import KeyCount

__all__ = ("Board", "Recovery", "Snapshot", "TaskLine", "recovery_of")

_HISTORY = 200
"""Seconds of the sparklines: more than a screen is wide."""
_LATEST = 60
"""The number of recent matches: more than a screen is high."""
_PEOPLE = 20_000
"""People whose matches are counted; past that, the least popular half is dropped."""
_VISIT = 5.0
"""Seconds before the screen shows another person's inbox."""
_READ = 1000
"""Matches per read: a few ms, also at the start, when matches of earlier runs are counted."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The recovered state of earlier runs."""

    keys: KeyCount
    replayed: int
    """Replayed changelog records."""
    milliseconds: float


def recovery_of(host: Host, milliseconds: float) -> Recovery:
    return Recovery(
        keys=host.recovered_keys,
        replayed=sum(report.recovered.replayed for report in host.reports),
        milliseconds=milliseconds,
    )


@dataclass(frozen=True, kw_only=True)
class TaskLine:
    """A task of the matchmaker."""

    number: int
    rate: float
    """Likes and timers per second."""
    behind: int
    """Offsets between its position and the end of its partition."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The immutable data of one frame."""

    directory: Path
    recovery: Recovery
    uptime: float
    event_time: int
    likes: int
    matches: int
    rates: Mapping[str, list[float]]
    """Per second, the newest last: likes, matches, commits."""
    latest: list[Match]
    """The newest first."""
    popular: list[tuple[str, int]]
    tasks: list[TaskLine]
    person: str | None
    inbox: Inbox | None
    url: str = ""
    """Where the dashboard is."""


@dataclass
class _Totals:
    """Counters at a moment; rates are computed from two of them."""

    at: float = field(default_factory=monotonic)
    likes: int = 0
    matches: int = 0
    commits: float = 0
    handled: Mapping[int, float] = field(default_factory=dict)


class Board:
    def __init__(self, host: Host, generator: Generator, recovery: Recovery) -> None:
        self._host, self._generator, self._recovery = host, generator, recovery
        self._started = monotonic()
        self._random = Random()
        self._matches = 0
        self._earlier = 0
        """The number of matches at the start, which is left out of rates."""
        self._latest: deque[Match] = deque(maxlen=_LATEST)
        self._popular: Counter[str] = Counter()
        self._rates = {name: deque[float](maxlen=_HISTORY) for name in ("likes", "matches", "commits")}
        self._tasks: list[TaskLine] = []
        self._person: str | None = None
        self._visited = 0.0
        self._last = _Totals()

    async def watch(self) -> None:
        """Follow the topic of matches, from its first one on, until cancelled."""
        while True:
            self._matches = self._earlier = 0
            self._latest.clear()
            self._popular.clear()
            try:
                await self._follow()
            except LogError:  # the topic was emptied: start again
                await asyncio.sleep(0.5)

    async def _follow(self) -> None:
        log, definition = self._host.log, self._host.plan.topics[matches.name]
        sources = [TopicPartition(matches.name, number) for number in range(definition.partitions)]
        ends = await log.end_offsets(sources)
        reader = log.reader()
        reader.assign(await log.start_offsets(sources))
        while True:
            for batch in await reader.read(max_records=_READ, timeout=0.5):
                for record in batch.records:
                    if record.value is not None:
                        self._earlier += record.offset < ends[batch.source]
                        self._count(definition.codec.decode(record.value))
            await asyncio.sleep(0.01)

    def _count(self, match: Match) -> None:
        self._matches += 1
        self._latest.append(match)
        self._popular[match.first] += 1
        self._popular[match.second] += 1
        if len(self._popular) > _PEOPLE:
            self._popular = Counter(dict(self._popular.most_common(_PEOPLE // 2)))

    async def measure(self) -> None:
        """Called once a second: the changes since the last call."""
        now, last = self._totals(), self._last
        seconds = max(now.at - last.at, 0.001)
        self._rates["likes"].append((now.likes - last.likes) / seconds)
        self._rates["matches"].append(max(0, now.matches - last.matches) / seconds)
        self._rates["commits"].append((now.commits - last.commits) / seconds)
        tasks = [task for task in self._host.tasks.values() if task.definition.name == matchmaker.name]
        ends = await self._host.log.end_offsets(source for task in tasks for source in task.inputs)
        self._tasks = [
            TaskLine(
                number=(number := task.plan.number),
                rate=(now.handled.get(number, 0) - last.handled.get(number, 0)) / seconds,
                behind=sum(max(0, ends[source] - input_.position) for source, input_ in task.inputs.items()),
            )
            for task in tasks
        ]
        self._last = now

    def _totals(self) -> _Totals:
        registry = self._host.engine.metrics.registry
        commits, handled = 0.0, {}
        for metric in registry.restricted_registry(["tidegate_commits_total", "tidegate_handled_total"]).collect():
            for sample in metric.samples:
                if sample.name == "tidegate_commits_total":
                    commits += sample.value
                elif sample.labels["service"] == matchmaker.name:
                    handled[int(sample.labels["task"])] = sample.value
        return _Totals(
            likes=self._generator.sent, matches=self._matches - self._earlier, commits=commits, handled=handled
        )

    async def snapshot(self) -> Snapshot:
        host = self._host
        person = self._somebody()
        return Snapshot(
            directory=host.directory,
            url=host.address,
            recovery=self._recovery,
            uptime=monotonic() - self._started,
            event_time=self._generator.stream.at,
            likes=self._generator.stream.number,
            matches=self._matches,
            rates={name: list(values) for name, values in self._rates.items()},
            latest=list(reversed(self._latest)),
            popular=self._popular.most_common(_LATEST),
            tasks=self._tasks,
            person=person,
            inbox=None if person is None else await read_inbox(await host.view(inbox.name), person),
        )

    def _somebody(self) -> str | None:
        """The inbox to show: for some seconds the same person, one who has just found a match, not the first."""
        if self._latest and (self._person is None or monotonic() - self._visited > _VISIT):
            self._visited = monotonic()
            some = self._random.choices(self._latest, k=3)
            people = [person for match in some for person in (match.first, match.second)]
            self._person = max(people, key=self._popular.__getitem__)
        return self._person

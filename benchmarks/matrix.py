"""The schedule of the measurements: each row once, then the fast ones again while there is time, the first workload's
rows before the others.

Rows alternate, so that a disturbance of the machine affects all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.measuring.latency import PACE, latency
from benchmarks.measuring.throughput import Bench, Result, throughput
from benchmarks.peers.catalog import Row
from benchmarks.peers.setup import SetupError
from benchmarks.workloads.ads import Ads
from benchmarks.workloads.base import Workload
from benchmarks.workloads.likes import Likes

__all__ = ("Matrix", "Plan")

_KEYS = 100_000
_HOUR = 3_600_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure, and for how long."""

    rows: Sequence[Row]
    workloads: Sequence[str]
    events: int
    rounds: int
    minutes: float
    """No round of a row starts that would end after this."""


@dataclass
class Matrix:
    """Runs a plan."""

    bench: Bench
    plan: Plan
    tell: Callable[[str, Row | None, Result | None], None]
    """Called before every long step, and with every result."""
    results: list[Result] = field(default_factory=list)
    _inputs: dict[tuple[str, int], Workload] = field(default_factory=dict)
    _took: dict[tuple[str, str], float] = field(default_factory=dict)

    async def run(self) -> None:
        await self._set_up()
        await self._fill()
        started = time.monotonic()
        for turn, (kind, row) in self._turns():
            expected = self._took.get((kind, row.name), 0.0)
            if turn and time.monotonic() - started + expected > self.plan.minutes * 60:
                continue
            await self._measure(kind, row)

    def _turns(self) -> Iterator[tuple[int, tuple[str, Row]]]:
        first = [(0, kind) for kind in self.plan.workloads]
        further = [(turn, kind) for kind in self.plan.workloads for turn in range(1, self.plan.rounds)]
        for turn, kind in (*first, *further):
            for row in self.plan.rows:
                if kind in row.workloads and (turn == 0 or (row.fast and not self._error(kind, row))):
                    yield turn, (kind, row)

    def _error(self, kind: str, row: Row) -> str:
        found = (result.error for result in self.results if (result.workload, result.row) == (kind, row.name))
        return next((error for error in found if error), "")

    async def _set_up(self) -> None:
        """Set up all peers first, so that no download disturbs a measurement. A failed setup is reported at the peer's
        turn."""
        for row in self.plan.rows:
            self.tell(f"setting up {row.name}", row, None)
            try:
                await asyncio.to_thread(row.command, row)
            except SetupError:
                continue

    async def _fill(self) -> None:
        """One topic per workload and partition count; every row reads the same one."""
        start = int(time.time() * 1000) - _HOUR
        for kind, row in ((kind, row) for kind in self.plan.workloads for row in self.plan.rows):
            if kind == "latency" or kind not in row.workloads or (kind, row.partitions) in self._inputs:
                continue
            events = self.plan.events
            workload: Workload = (
                Likes(events, min(_KEYS, events // 5), row.partitions, start)
                if kind == "w"
                else Ads(events, row.partitions, start)
            )
            self.tell(f"filling {workload.topic}: {events:,} events", None, None)
            await self.bench.cluster.create_input(workload.topic, workload.partitions)
            await self.bench.cluster.fill(workload.topic, workload.stream(), workload.partitions)
            workload.least_outputs  # noqa: B018  worked out now, and kept
            self._inputs[kind, row.partitions] = workload

    def _too_slow(self, row: Row) -> Result | None:
        """A peer whose measured throughput is below the pace of the latency test is not run in it."""
        rate = max((run.rate for run in self.results if (run.workload, run.row) == ("w", row.name)), default=0.0)
        if not 0 < rate < PACE * 0.9:
            return None
        error = f"it falls behind at {PACE:,} events/s: it handles {rate:,.0f}"
        return Result(row=row.name, workload="latency", error=error)

    async def _measure(self, kind: str, row: Row) -> None:
        self.tell(f"{kind}: {row.name}", row, None)
        started = time.monotonic()
        if kind == "latency":
            result = self._too_slow(row) or await latency(self.bench, row)
        else:
            result = await throughput(self.bench, row, self._inputs[kind, row.partitions])
        self._took[kind, row.name] = time.monotonic() - started
        self.results.append(result)
        self.tell("", row, result)

"""The restart time of a worker: with its local state, and without it, restored from the changelogs only.

    python -m benchmarks.restoring                                       1 M keys in 4 partitions
    python -m benchmarks.restoring --keys 5000000 --partitions 64       how much memory many tasks need

1. Fill a topic with one event of each key. 2. Let a worker count them, and stop it. 3. Restart it with its
directory. 4. Start it once more without that directory. 5. Let it handle events of random keys.
The time is measured from the worker's log line with its assignment to the line that says that it is restored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.measuring.cluster import Cluster
from benchmarks.measuring.process import Process, running
from benchmarks.workloads.events import likes_of
from tidegate_app.kafka.broker import Broker

__all__ = ("main",)

_PATIENCE = 900.0
_TICK = 0.01
_ASSIGNED = re.compile(r"assigned: ")
_READY = re.compile(r"recovered (?P<keys>.*), replayed (?P<records>[\d,]+) records")

console = Console(width=None if sys.stdout.isatty() else 130)


@dataclass
class Start:
    """One start of a worker."""

    seconds: float
    """Seconds from the group's assignment to the end of the restore."""
    cpu: float
    """CPU seconds of the worker meanwhile: the wall time on an otherwise idle machine."""
    replayed: int
    rss_mb: float


@dataclass
class Course:
    """A worker's data, and how it is started."""

    address: str
    partitions: int
    topic: str = field(default_factory=lambda: f"likes-{uuid.uuid4().hex[:8]}")
    name: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:8]}")
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="tidegate-bench-")))

    @contextlib.asynccontextmanager
    async def worker(self, *options: str) -> AsyncIterator[Process]:
        command: list[str | Path] = [
            Path(sys.executable).with_name("tidegate"), "worker", "benchmarks.apps.w:app",
            "--broker", f"kafka://{self.address}", "--data", str(self.directory / "data"), *options,
        ]  # fmt: skip
        environment = {
            "BENCH_ID": self.name,
            "BENCH_INPUT": self.topic,
            "BENCH_OUTPUT": f"{self.topic}-out",
            "BENCH_PARTITIONS": str(self.partitions),
        }
        async with running(command, environment, self.directory / "worker.log", None) as process:
            yield process

    async def run_to_end(self) -> tuple[float, float]:
        """Seconds, and the peak memory in MB."""
        started = time.monotonic()
        async with self.worker("--until-end") as process:
            while not process.ended:
                if time.monotonic() - started > _PATIENCE:
                    raise click.ClickException(f"the worker does not end:\n{process.complaint()}")
                process.sample()
                await asyncio.sleep(0.1)
            if process.popen.returncode:
                raise click.ClickException(f"the worker failed:\n{process.complaint()}")
        return time.monotonic() - started, process.peak_rss / 1e6

    async def start(self) -> Start:
        async with self.worker() as process:
            assigned = await self._line(process, _ASSIGNED)
            process.sample()
            ready = await self._line(process, _READY)
            process.sample()
            found = _READY.search(self._log())
            await process.stop()
        replayed = int(found["records"].replace(",", "")) if found else 0
        cpu = process.own[-1].cpu - process.own[0].cpu
        return Start(ready - assigned, cpu, replayed, process.peak_rss / 1e6)

    async def _line(self, process: Process, pattern: re.Pattern[str]) -> float:
        """The time of a log line."""
        deadline = time.monotonic() + _PATIENCE
        while not pattern.search(self._log()):
            if process.ended or time.monotonic() > deadline:
                raise click.ClickException(f"no such line: {pattern.pattern!r}\n{process.complaint()}")
            await asyncio.sleep(_TICK)
        return time.monotonic()

    def _log(self) -> str:
        path = self.directory / "worker.log"
        return path.read_text(errors="replace") if path.exists() else ""


async def measure(address: str, keys: int, partitions: int, events: int) -> Table:
    course = Course(address, partitions)
    try:
        async with Cluster.connect(address) as cluster:
            before = await cluster.topics()
            console.print(f"[dim]filling: {keys:,} keys in {partitions} partitions[/dim]")
            await cluster.create_input(course.topic, partitions)
            await cluster.fill(course.topic, likes_of(keys, keys, each_once=True), partitions)
            seconds, filling_mb = await course.run_to_end()
            console.print(f"[dim]counted in {seconds:.1f} s[/dim]")
            kept = await course.start()
            shutil.rmtree(course.directory / "data")
            lost = await course.start()
            await cluster.fill(course.topic, likes_of(events, keys), partitions)
            seconds, busy_mb = await course.run_to_end()
            await cluster.delete(await cluster.topics() - before)
    finally:
        shutil.rmtree(course.directory, ignore_errors=True)
    table = Table("", "measured", "asked", title=f"{keys:,} keys, {partitions} partitions", title_justify="left")
    table.add_row("restart with its local state", _row(kept), "≤ 1 s")
    table.add_row("restore from the changelogs", _row(lost), "1 M keys ≤ 5 s")
    table.add_row("records restored per second", f"{lost.replayed / lost.seconds:,.0f}", "≥ 300,000")
    table.add_row("RSS while the state grows", f"{filling_mb:,.0f} MB", "5 M keys < 1 GB")
    table.add_row("RSS after the restore", f"{lost.rss_mb:,.0f} MB", "5 M keys < 1 GB")
    table.add_row(f"RSS while {events:,} random events are handled", f"{busy_mb:,.0f} MB", "5 M keys < 1 GB")
    table.add_row("load of the machine", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", "")
    return table


def _row(start: Start) -> str:
    return f"{start.seconds:.2f} s (CPU {start.cpu:.2f} s), {start.replayed:,} records"


@contextlib.contextmanager
def broker_at(given: str) -> Iterator[str]:
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-broker-", ignore_cleanup_errors=True) as directory:
        started = Broker(Path(directory))
        started.start()
        try:
            yield started.address
        finally:
            started.stop()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--keys", default=1_000_000)
@click.option("--partitions", default=4)
@click.option("--events", default=500_000, help="Of random keys, at the end.")
@click.option("--broker", default="", help="HOST:PORT of a running broker; by default one is started.")
def main(keys: int, partitions: int, events: int, broker: str) -> None:
    """Measure restarts, restores, and the memory of a worker on Kafka."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # new topics have no leader yet
    with broker_at(broker) as address:
        console.print(uvloop.run(measure(address, keys, partitions, events)))


if __name__ == "__main__":
    main()

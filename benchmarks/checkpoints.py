"""What checkpoints cost: throughput, the loop's time, bytes, and how long a restore takes. One process, embedded log.

python -m benchmarks.checkpoints [--keys 1000000] [--seconds 25] [--rounds 10] [--interval 10]

1. A counter for each key.
2. More events than can be handled are there. After a run that does not count, for so many seconds each: without
   checkpoints, with one every interval, with them again, and without; so what changes as the log grows is not taken for
   their cost. How many events were handled; how much CPU time an event took, because the clock also counts what others
   do on the machine; and how long the event loop was held, by what (see `holding`).
3. One key in a hundred changes between checkpoints: how much of each is uploaded, compared with the first.
4. The local stores are deleted: how long until the tasks are back.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import uvloop

from benchmarks.holding import COMMIT, HANDLE, OF_CHECKPOINTS, Holding, measured
from tidegate import App, Context, Default, ValueState
from tidegate.host import Host
from tidegate.keys import partition_of
from tidegate.logs.base import NewRecord, TopicPartition

__all__ = ("main",)

PARTITIONS = 4
CHUNK = 10_000
_AMPLE = 2.0
"""How many more events there are than would be handled at the rate at which the keys were filled."""

app = App("counting", partitions=PARTITIONS)
events = app.topic("events", value_type=int)


@app.process(events)
async def count(ctx: Context, event: int, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1


class Lag:
    """How long the loop was not there for others, in ms."""

    def __init__(self) -> None:
        self.worst: list[float] = []

    async def watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst.append((time.perf_counter() - before) * 1000 - 1)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def new_host(data: Path, *, until_end: bool = True, interval: float = 0.0) -> Host:
    return Host(app.define, flags={"data": data, "checkpoint_interval": interval}, until_end=until_end)


async def append(host: Host, keys: Iterable[int]) -> None:
    writer = await host.log.writer()
    records: dict[TopicPartition, list[NewRecord]] = {}
    for number, key in enumerate(keys, 1):
        name = b"key-%08d" % key
        records.setdefault(TopicPartition("events", partition_of(name, PARTITIONS)), []).append((name, b"1", 1, ()))
        if number % CHUNK == 0:
            await writer.append(records)
            records = {}
    await writer.append(records)
    await writer.close()


async def fill(data: Path, keys: int) -> float:
    """Count each key once. Returns events per second."""
    await put(data, range(keys))
    host = new_host(data)
    await host.start()
    before = time.perf_counter()
    await host.run()
    took = time.perf_counter() - before
    await host.stop()
    return keys / took


async def put(data: Path, keys: Iterable[int]) -> None:
    """Append events while no service runs."""
    host = new_host(data)
    await host.start()
    await append(host, keys)
    await host.stop()


@dataclass(frozen=True, kw_only=True)
class Result:
    """Of one run."""

    seconds: float
    cpu: float
    handled: int
    checkpoints: int
    lag: list[float]
    """How late the loop was, each time, in ms; sorted."""
    holding: Holding

    @property
    def rate(self) -> float:
        return self.handled / self.seconds

    @property
    def cpu_each(self) -> float:
        """µs of CPU time an event."""
        return self.cpu / self.handled * 1e6

    def told(self, name: str) -> str:
        late = f"{self.lag[int(len(self.lag) * 0.999)]:.0f} ms (p99.9), {self.lag[-1]:.0f} ms (most)"
        cost = f"{self.rate:>9,.0f} events/s, {self.cpu_each:.2f} µs CPU an event"
        lines = [
            f"  {name}: {cost}, in {self.seconds:.0f} s; {self.checkpoints} checkpoints",
            f"    loop late by {late}; longest held by {self.holding.told(HANDLE, COMMIT)}",
        ]
        if self.checkpoints:
            lines.append(f"    by checkpoints: {self.holding.told(*OF_CHECKPOINTS)}")
        return "\n".join(lines)


async def phase(data: Path, seconds: float, interval: float) -> Result:
    """Handle what there is, for so long, and say what that took."""
    host = new_host(data, until_end=False, interval=interval)
    with measured() as holding:
        await host.start()
        running, lag = asyncio.ensure_future(host.run()), Lag()
        watching, began = asyncio.ensure_future(lag.watch()), handled_by(host)
        taken, before, cpu = complete(host), time.perf_counter(), time.process_time()
        await handled(host, seconds)
        found = Result(
            seconds=time.perf_counter() - before,
            cpu=time.process_time() - cpu,
            handled=handled_by(host) - began,
            checkpoints=complete(host) - taken,
            lag=sorted(lag.worst),
            holding=holding,
        )
        watching.cancel()
        await cancelled(running)
    await host.stop()
    return found


async def at_end(host: Host) -> bool:
    ends = [(task, await host.log.end_offsets(task.inputs)) for task in host.tasks.values()]
    return all(task.inputs[source].position >= end for task, found in ends for source, end in found.items())


def handled_by(host: Host) -> int:
    return int(_counted(host, "tidegate_handled_total"))


def complete(host: Host) -> int:
    return int(_counted(host, "tidegate_checkpoints_total", outcome="complete"))


def _counted(host: Host, name: str, **labels: str) -> float:
    samples = (sample for family in host.engine.metrics.registry.collect() for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())


async def cancelled(running: asyncio.Future[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def cost(data: Path, keys: int, rate: float, seconds: float, interval: float) -> None:
    dice = random.Random(7)
    results: dict[float, list[Result]] = {0.0: [], interval: []}
    waiting = 0
    for number, setting in enumerate((0.0, 0.0, interval, interval, 0.0)):
        more = max(0, round(rate * seconds * _AMPLE) - waiting)
        await put(data, (dice.randrange(keys) for _ in range(more)))
        found = await phase(data, seconds, setting)
        rate, waiting = max(rate, found.rate), waiting + more - found.handled
        if number:
            results[setting].append(found)
            say(found.told(f"every {setting:g} s" if setting else "none"))
    without, with_ = results[0.0], results[interval]
    taken = sum(found.checkpoints for found in with_)
    say(
        f"  {taken} checkpoints; events/s with them / without: {_ratio(with_, without, 'rate'):.3f}; "
        f"CPU an event: {_ratio(with_, without, 'cpu_each'):.3f}"
    )
    if taken:
        longest, cpu = (
            1000 * max(both) for both in zip(*(found.holding.by_checkpoints for found in with_), strict=True)
        )
        say(f"  the loop was held by a step of a checkpoint for {longest:.1f} ms at most ({cpu:.1f} ms CPU)")
    else:
        say("  no checkpoint fell into these runs: give them more --seconds, or a shorter --interval")


def _ratio(some: list[Result], others: list[Result], what: str) -> float:
    """Of their means."""
    first, second = (sum(getattr(found, what) for found in results) / len(results) for results in (some, others))
    return float(first / second)


async def incremental(data: Path, keys: int, rounds: int) -> None:
    dice = random.Random(11)
    host = new_host(data, until_end=False)
    await host.start()
    running = asyncio.ensure_future(host.run())
    await handled(host)
    whole = await uploaded(host, "whole")
    await host.checkpoint()  # what the next one shares
    shares = []
    for number in range(rounds):
        await append(host, dice.sample(range(keys), keys // 100))
        await handled(host)
        await asyncio.sleep(0.5)  # a commit after it
        shares.append(await uploaded(host) / whole)
        say(f"  {number + 1}: {100 * shares[-1]:.1f} %")
    say(f"  first: {whole / 1e6:.1f} MB; mean of the next {rounds}: {100 * sum(shares) / rounds:.1f} %")
    await cancelled(running)
    await host.stop()


async def handled(host: Host, seconds: float = math.inf) -> None:
    """Everything that is in the log, or as much of it as can be in so many seconds."""
    until = time.perf_counter() + seconds
    while not await at_end(host):
        await asyncio.sleep(0.01 if seconds == math.inf else 0.1)
        if time.perf_counter() >= until:
            return


async def uploaded(host: Host, name: str | None = None) -> int:
    """Take a checkpoint; a savepoint shares nothing, so it counts as a whole."""
    epoch = await host.checkpoint(name)
    return (await host.checkpoints.storage()).manifest(name or epoch).uploaded


async def restore(data: Path) -> None:
    shutil.rmtree(data / "counting" / "stores")
    host = new_host(data)
    before = time.perf_counter()
    await host.start()
    took = time.perf_counter() - before
    fetched = sum(report.recovered.fetched for report in host.reports)
    replayed = sum(report.recovered.replayed for report in host.reports)
    slowest = max(report.recovered.milliseconds for report in host.reports)
    say(f"  {host.recovered_keys} in {took:.2f} s (slowest task {slowest / 1000:.2f} s), {fetched} of {PARTITIONS}")
    say(f"  tasks from a checkpoint, {replayed:,} records replayed")
    await host.stop()


async def run(options: Any) -> None:
    directory = Path(tempfile.mkdtemp(prefix="tidegate-checkpoints-"))
    try:
        say(f"{options.keys:,} keys, {PARTITIONS} tasks")
        rate = await fill(directory, options.keys)
        say(f"  filled at {rate:,.0f} events/s")
        if options.seconds:
            say(f"{options.seconds:g} s each, without checkpoints and with one every {options.interval:g} s")
            await cost(directory, options.keys, rate, options.seconds, options.interval)
        say(f"{options.rounds} checkpoints, 1 % of the keys changed before each")
        await incremental(directory, options.keys, options.rounds)
        say("Restore without local state")
        await restore(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=25.0, help="of each run; 0: do not measure throughput")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--interval", type=float, default=10.0)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

"""The cost of checkpoints: throughput, event loop time, bytes, and the duration of a restore. One process, embedded
log.

python -m benchmarks.checkpoints [--keys 1000000] [--rounds 10] [--pairs 12] [--interval 10]

1. A counter per key. Each key is counted once in order, and then about once more in random order.
2. One key in a hundred changes between checkpoints: how much of each is uploaded, compared with the first.
3. The local stores are deleted: how long until the tasks are back.
4. One worker handles a backlog of events all the time. Windows of one interval alternate, in the order of
   `paired_windows`: at the start of one a checkpoint is taken, as with this checkpoint interval, and in the other none.
   Stores are flushed every ten seconds in both, as long as no snapshot does it. Measured are the handled events; the
   CPU time per event, because the wall clock also counts other processes on the machine, and their share; and how long
   the event loop was held, and by what (see `loop_holds`).

Shorter windows would give more pairs, but would measure something else. A snapshot that comes 2.5 s after another one
takes a third of the time of one that comes 7.5 s after it, and stores that have so many are never flushed in between.

The work that a checkpoint leaves to the next window, such as compaction of the flushed files, is a separate ratio; the
cost is the product of both. Uploads are not part of it: a window with a checkpoint ends when the checkpoint is
complete. A longer window is shown as such.

The log's compaction of changelogs is paused meanwhile. Its passes of about a minute take 8 to 25 % of the loop's time,
more than the effect to be measured.
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
import uvloop

from benchmarks.measuring.loop_holds import COMMIT, HANDLE, OF_CHECKPOINTS, Holding, measured
from benchmarks.measuring.paired_windows import after, between, order
from tidegate import App, Context, Default, ValueState
from tidegate.host.host import Host
from tidegate.keys import partition_of
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.logs.embedded.maintenance.cleaner import Cleaner

__all__ = ("main",)

PARTITIONS = 4
CHUNK = 10_000
_AMPLE = 1.5
"""The factor by which the backlog exceeds the events that the measured rate would handle."""
_WARM_UP = 2
"""Warm-up windows with a checkpoint: the first one uploads everything."""

_QUIET = 0.2
"""The limit of other processes' CPU share in a window that counts."""

app = App("counting", partitions=PARTITIONS)
events = app.topic("events", value_type=int)


@app.process(events)
async def count(ctx: Context, event: int, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1


class Lag:
    """How long the event loop was held, in ms."""

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


def new_host(data: Path, *, until_end: bool = True) -> Host:
    """Takes checkpoints on request."""
    return Host(app.define, flags={"data": data, "checkpoint_interval": 0.0}, until_end=until_end)


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
    """Count each key once in order, and as many events in random order. Returns events per second of the latter."""
    rate = 0.0
    for some in (range(keys), random.Random(7).choices(range(keys), k=keys)):
        await put(data, some)
        host = new_host(data)
        await host.start()
        before = time.perf_counter()
        await host.run()
        rate = keys / (time.perf_counter() - before)
        await host.stop()
    return rate


async def put(data: Path, keys: Iterable[int]) -> None:
    """Append events while no service runs."""
    host = new_host(data)
    await host.start()
    await append(host, keys)
    await host.stop()


async def put_many(data: Path, keys: int, events: int) -> None:
    """The same for many events with random keys: the records are built once."""
    host, dice = new_host(data), random.Random(13)
    await host.start()
    pools: dict[TopicPartition, list[NewRecord]] = {}
    for name in (b"key-%08d" % key for key in range(keys)):
        pools.setdefault(TopicPartition("events", partition_of(name, PARTITIONS)), []).append((name, b"1", 1, ()))
    writer = await host.log.writer()
    for _ in range(math.ceil(events / CHUNK)):
        await writer.append({source: dice.choices(pool, k=CHUNK * len(pool) // keys) for source, pool in pools.items()})
    await writer.close()
    await host.stop()


async def at_end(host: Host) -> bool:
    ends = [(task, await host.log.end_offsets(task.inputs)) for task in host.tasks.values()]
    return all(task.inputs[source].position >= end for task, found in ends for source, end in found.items())


async def cancelled(running: asyncio.Future[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


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


async def handled(host: Host) -> None:
    """The number of records in the log."""
    while not await at_end(host):  # noqa: ASYNC110  the log has no event for it
        await asyncio.sleep(0.01)


async def uploaded(host: Host, name: str | None = None) -> int:
    """Take a checkpoint; a savepoint shares no files with earlier ones, so it counts completely."""
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


# ------------------------------------------------------------------------------------------------------- windows


@dataclass(frozen=True, kw_only=True)
class Window:
    taken: bool
    """Whether a checkpoint was taken."""
    seconds: float
    cpu: float
    others: float
    """CPU time of all other processes and the hypervisor, in seconds."""
    handled: int
    lag: Sequence[float]
    """The delays of the event loop, in ms."""
    holding: Holding

    @property
    def rate(self) -> float:
        return self.handled / self.seconds

    @property
    def cpu_each(self) -> float:
        """CPU time per event in µs."""
        return self.cpu / self.handled * 1e6

    @property
    def quiet(self) -> bool:
        return self.others < _QUIET * self.seconds

    def summary(self) -> str:
        return (
            f"  {'with' if self.taken else 'none'}: {self.rate:>9,.0f} events/s, {self.cpu_each:.2f} µs CPU an event, "
            f"in {self.seconds:.1f} s; others {100 * self.others / self.seconds:.0f} % of a core"
        )


async def cost(data: Path, keys: int, rate: float, pairs: int, seconds: float) -> None:
    kinds = [*order(pairs)]
    await put_many(data, keys, round(rate * _AMPLE * seconds * (len(kinds) + _WARM_UP)))
    host, windows = new_host(data, until_end=False), list[Window]()
    with measured() as holding, no_cleaning():
        await host.start()
        running = asyncio.ensure_future(host.run())
        for _ in range(_WARM_UP):
            await window(host, seconds, holding, taken=True)
        for taken in kinds:
            found = await window(host, seconds, holding, taken=taken)
            if await at_end(host):
                say("  there were not enough events: that window was of a worker at rest, and is left out")
                break
            windows.append(found)
            say(found.summary())
        await cancelled(running)
        await host.stop()
    if len(windows) > 2:
        tell(windows if len(windows) % 2 else windows[:-1])


@contextmanager
def no_cleaning() -> Iterator[None]:
    is_due = Cleaner.is_due
    Cleaner.is_due = lambda *_: False  # type: ignore[method-assign]
    try:
        yield
    finally:
        Cleaner.is_due = is_due  # type: ignore[method-assign]


async def window(host: Host, seconds: float, holding: Holding, *, taken: bool) -> Window:
    holding.clear()
    lag = Lag()
    watching = asyncio.ensure_future(lag.watch())
    began, before, cpu, busy = handled_by(host), time.perf_counter(), time.process_time(), _busy()
    waiting = asyncio.sleep(seconds)
    await (asyncio.gather(host.checkpoint(), waiting) if taken else waiting)
    own = time.process_time() - cpu
    found = Window(
        taken=taken,
        seconds=time.perf_counter() - before,
        cpu=own,
        others=_busy() - busy - own,
        handled=handled_by(host) - began,
        lag=lag.worst,
        holding=holding.copy(),
    )
    watching.cancel()
    return found


def handled_by(host: Host) -> int:
    """Committed and uncommitted handled events: a window does not end with a commit."""
    samples = (sample for family in host.engine.metrics.registry.collect() for sample in family.samples)
    committed = sum(sample.value for sample in samples if sample.name == "tidegate_handled_total")
    return int(committed) + sum(task.invoker.handled for task in host.tasks.values())


def _busy() -> float:
    """The CPU time of all processors since the start, in seconds."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0) - getattr(times, "guest", 0))


def tell(windows: Sequence[Window]) -> None:
    for name, taken in ("without", False), ("with", True):
        some = [window for window in windows if window.taken is taken]
        lag = sorted(late for window in some for late in window.lag)
        kinds = (HANDLE, COMMIT, *OF_CHECKPOINTS) if taken else (HANDLE, COMMIT)
        say(f"  {name}: loop late by {lag[int(len(lag) * 0.999)]:.0f} ms (p99.9), {lag[-1]:.0f} ms (most)")
        say(f"    longest held by {Holding.worst(window.holding for window in some).summary(*kinds)}")
    late = max(window.seconds for window in windows) / min(window.seconds for window in windows) - 1
    say(f"  the longest window was {100 * late:.1f} % longer than the shortest")
    for which, chosen in ("quiet", [window.quiet for window in windows]), ("all", [True] * len(windows)):
        say(f"  {which} windows, {sum(chosen)} of {len(windows)}:")
        counted = [*zip(windows, chosen, strict=True)]
        say(_ratios("events/s", [window.rate if counts else None for window, counts in counted]))
        say(_ratios("CPU an event", [window.cpu_each if counts else None for window, counts in counted]))
    longest, cpu = (1000 * spent for spent in Holding.worst(window.holding for window in windows).by_checkpoints)
    say(f"  the loop was held by a step of a checkpoint for {longest:.1f} ms at most ({cpu:.1f} ms CPU)")


def _ratios(name: str, values: Sequence[float | None]) -> str:
    try:
        own, left = between(values), after(values)
    except ValueError as error:
        return f"    {name}: {error}"
    both = f"{own} in the window with it ({own.pairs} pairs), {left} in the one after it ({left.pairs} pairs)"
    return f"    {name} with / without: {own * left}: {both}"


async def run(options: Any) -> None:
    directory = Path(tempfile.mkdtemp(prefix="tidegate-checkpoints-"))
    try:
        say(f"{options.keys:,} keys, {PARTITIONS} tasks")
        rate = await fill(directory, options.keys)
        say(f"  filled; then {rate:,.0f} events/s")
        say(f"{options.rounds} checkpoints, 1 % of the keys changed before each")
        await incremental(directory, options.keys, options.rounds)
        say("Restore without local state")
        await restore(directory)
        if options.pairs:
            say(f"{options.pairs} pairs of windows of {options.interval:g} s, without a checkpoint and with one")
            await cost(directory, options.keys, rate, options.pairs, options.interval)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=12, help="of windows; 0: do not measure throughput")
    parser.add_argument("--interval", type=float, default=10.0)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

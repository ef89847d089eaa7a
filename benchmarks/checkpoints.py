"""What checkpoints cost: throughput, the loop's time, bytes, and how long a restore takes. One process, embedded log.

python -m benchmarks.checkpoints [--keys 1000000] [--events 1000000] [--rounds 10] [--interval 10]

1. A counter for each key.
2. The same events, twice each in turn: without checkpoints, and with one every interval. CPU time is compared, because
   the clock also counts what others do on the machine.
3. One key in a hundred changes between checkpoints: how much of each is uploaded, compared with the first.
4. The local stores are deleted: how long until the tasks are back.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import uvloop

from tidegate import App, Context, Default, ValueState
from tidegate.host import Host
from tidegate.keys import partition_of
from tidegate.logs.base import NewRecord, TopicPartition

__all__ = ("main",)

PARTITIONS = 4
CHUNK = 10_000

app = App("counting", partitions=PARTITIONS)
events = app.topic("events", value_type=int)


@app.process(events)
async def count(ctx: Context, event: int, seen: Annotated[ValueState[int], Default(0)]) -> None:
    seen.value += 1


class Lag:
    """How long the loop was not there for others: the longest time, in ms."""

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


async def phase(data: Path, keys: Iterable[int], interval: float) -> dict[str, float]:
    """Handle events for these keys to the end, and say what that took."""
    host = new_host(data)
    await host.start()
    await append(host, keys)
    await host.stop()
    host = new_host(data, interval=interval)
    await host.start()
    lag, before = Lag(), time.perf_counter()
    watching, cpu = asyncio.ensure_future(lag.watch()), time.process_time()
    await host.run()
    took, cpu = time.perf_counter() - before, time.process_time() - cpu
    watching.cancel()
    taken = host.checkpoints.status.last_complete
    await host.stop()
    worst = sorted(lag.worst)
    return {
        "seconds": took,
        "cpu": cpu,
        "epoch": 0 if taken is None else taken.epoch,
        "lag_p999": worst[int(len(worst) * 0.999)],
        "lag_max": worst[-1],
    }


async def cost(data: Path, keys: int, count_: int, interval: float) -> None:
    dice = random.Random(7)
    chosen = [dice.randrange(keys) for _ in range(count_)]
    results: dict[float, list[dict[str, float]]] = {0.0: [], interval: []}
    last = 0.0
    for setting in (0.0, interval, 0.0, interval):
        found = await phase(data, chosen, setting)
        found["checkpoints"], last = (found["epoch"] - last, found["epoch"]) if setting else (0, last)
        results[setting].append(found)
        say(
            f"  {f'every {setting:g} s' if setting else 'none'}: {count_ / found['seconds']:>9,.0f} events/s, "
            f"{found['cpu'] / count_ * 1e6:.2f} µs CPU an event, {found['checkpoints']:.0f} checkpoints, "
            f"loop held {found['lag_p999']:.0f} ms (p99.9), {found['lag_max']:.0f} ms (most)"
        )
    without = sum(found["cpu"] for found in results[0.0])
    with_ = sum(found["cpu"] for found in results[interval])
    taken = sum(found["checkpoints"] for found in results[interval])
    if taken:
        each = (with_ - without) / taken
        say(f"  a checkpoint takes {each:.2f} s of CPU: {100 * each / interval:.1f} % of a core at this interval")
    say(f"  CPU with them / without: {with_ / without:.3f}")


async def incremental(data: Path, keys: int, rounds: int) -> None:
    dice = random.Random(11)
    host = new_host(data, until_end=False)
    await host.start()
    running = asyncio.ensure_future(host.run())
    whole = await uploaded(host)
    shares = []
    for number in range(rounds):
        await append(host, dice.sample(range(keys), keys // 100))
        await handled(host)
        shares.append(await uploaded(host) / whole)
        say(f"  {number + 1}: {100 * shares[-1]:.1f} %")
    say(f"  first: {whole / 1e6:.1f} MB; mean of the next {rounds}: {100 * sum(shares) / rounds:.1f} %")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await host.stop()


async def handled(host: Host) -> None:
    """Everything that is in the log, and a commit after it."""
    while True:
        ends = [(task, await host.log.end_offsets(task.inputs)) for task in host.tasks.values()]
        if all(task.inputs[source].position >= end for task, found in ends for source, end in found.items()):
            await asyncio.sleep(0.5)
            return
        await asyncio.sleep(0.01)


async def uploaded(host: Host) -> int:
    """Take a checkpoint; the first one counts as a whole, whatever it shares."""
    first = host.checkpoints.status.last_complete is None
    epoch = await host.checkpoint("whole" if first else None)
    storage = await host.checkpoints.storage()
    manifest = storage.manifest("whole" if first else epoch)
    if first:
        await host.checkpoint()
    return manifest.uploaded


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
        filled = await phase(directory, range(options.keys), 0.0)
        say(f"  filled at {options.keys / filled['seconds']:,.0f} events/s")
        if options.events:
            say(f"{options.events:,} events, with and without checkpoints")
            await cost(directory, options.keys, options.events, options.interval)
        say(f"{options.rounds} checkpoints, 1 % of the keys changed before each")
        await incremental(directory, options.keys, options.rounds)
        say("Restore without local state")
        await restore(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=1_000_000, help="0: do not measure throughput")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--interval", type=float, default=10.0)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

"""One latency measurement: events of W at a steady pace, and the time until each committed result can be read.

Latency starts when an event was due to be sent, so that a slow driver cannot improve it. The driver's own time counts,
too, so it disables Python's garbage collector meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import shutil
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.measuring.process import Process, running
from benchmarks.measuring.throughput import Bench, Result, command_of, environment_of
from benchmarks.peers.catalog import Row
from benchmarks.peers.setup import SetupError
from benchmarks.workloads.events import Count
from tidegate.keys import partition_of

__all__ = ("PACE", "latency")

PACE = 10_000
"""Events per second."""

_KEYS, _PARTITIONS = 100_000, 4
_TICK = 0.01
_WARM, _MEASURED = 8.0, 12.0
_FIRST_OUTPUT = 120.0
_DRAIN = 10.0


class Driver:
    """Sends likes, receives counts, and tracks the due time of each count."""

    def __init__(self, topic: str, output: str, bootstrap: str) -> None:
        self._topic = topic
        self._output = output
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_batch_size=1 << 20)
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
        self._rng = random.Random(3)
        self._sent: dict[int, int] = defaultdict(int)
        self._pending: set[asyncio.Future[Any]] = set()
        self.due: dict[tuple[int, int], float] = {}
        self.received: list[tuple[float, float]] = []
        """For each result, the due time of its event, and the latency."""
        self.problem = ""

    async def __aenter__(self) -> Driver:
        await self._producer.start()
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()
        await self._producer.stop()

    async def send(self, count: int, at: float) -> None:
        """Send this many events, due now."""
        batches: dict[int, Any] = {}
        for _ in range(count):
            number = self._rng.randrange(_KEYS)
            self._sent[number] = n = self._sent[number] + 1
            if n % 2 == 0:
                self.due[number, n] = at
            key = b"user-%d" % number
            partition = partition_of(key, _PARTITIONS)
            batch = batches.get(partition) or batches.setdefault(partition, self._producer.create_batch())
            value = b'{"liker":"user-0","liked":"%s","ts":%d}' % (key, at * 1000)
            batch.append(key=key, value=value, timestamp=int(at * 1000))
        for partition, batch in batches.items():
            batch.close()
            sent = await self._producer.send_batch(batch, self._topic, partition=partition)
            self._pending.add(sent)
            sent.add_done_callback(self._pending.discard)

    async def pace(self, rate: int, seconds: float) -> None:
        started = time.time()
        for tick in range(1, round(seconds / _TICK) + 1):
            at = started + tick * _TICK
            await asyncio.sleep(max(at - time.time(), 0))
            await self.send(round(rate * _TICK), at)

    async def receive(self, partitions: int) -> None:
        """Read results continuously."""
        decode = msgspec.json.Decoder(Count).decode
        places = [TopicPartition(self._output, number) for number in range(partitions)]
        self._consumer.assign(places)
        await self._consumer.seek_to_beginning(*places)
        while True:
            for records in (await self._consumer.getmany(timeout_ms=1000)).values():
                now = time.time()
                for record in records:
                    count = decode(record.value)
                    due = self.due.pop((int(count.who[5:]), count.n), None)
                    if due is None:
                        self.problem = self.problem or f"{count.who}: {count.n} came twice, or is not due"
                    else:
                        self.received.append((due, now - due))


async def latency(bench: Bench, row: Row) -> Result:
    """1. Make the topics. 2. Run the peer. 3. Send at a pace. 4. Wait for the remaining results. 5. Delete the run's
    topics."""
    cluster = bench.cluster
    before = await cluster.topics()
    directory = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    names = {"input": f"paced-{uuid.uuid4().hex[:8]}", "output": f"out-{uuid.uuid4().hex[:8]}"}
    result = Result(row=row.name, workload="latency")
    try:
        await cluster.create_input(names["input"], _PARTITIONS)
        await cluster.create_output(names["output"], row.output_partitions)
        environment = environment_of(row, "latency", {**names, "partitions": str(_PARTITIONS)}, bench, directory)
        command = await asyncio.to_thread(command_of, row, environment)
        async with (
            running(command, environment, directory / "peer.log", bench.broker_pid) as process,
            Driver(names["input"], names["output"], cluster.bootstrap) as driver,
        ):
            await _drive(driver, process, row.output_partitions, result)
            await process.stop()
    except SetupError as error:
        result.error = str(error)
    finally:
        await cluster.delete(await cluster.topics() - before)
        shutil.rmtree(directory, ignore_errors=True)
    return result


async def _drive(driver: Driver, process: Process, partitions: int, result: Result) -> None:
    receiving = asyncio.create_task(driver.receive(partitions))
    gc.collect()
    gc.disable()
    try:
        result.error = await _wake(driver, process)
        if result.error:
            return
        await driver.pace(PACE, _WARM)
        start = time.time()
        process.sample()
        await driver.pace(PACE, _MEASURED)
        process.sample()
        behind = await _drained(driver, process)
        _fill(result, driver, process, start, behind=behind)
        if receiving.done():
            receiving.result()
    finally:
        gc.enable()
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving


async def _wake(driver: Driver, process: Process) -> str:
    """Send a few events at a time until the first result arrives, which shows that the peer is up. Returns an error if
    not."""
    deadline = time.monotonic() + _FIRST_OUTPUT
    while not driver.received:
        if process.ended:
            return f"it ended with exit code {process.popen.returncode}:\n{process.complaint()}"
        if time.monotonic() > deadline:
            return f"no output within {_FIRST_OUTPUT:.0f} s:\n{process.complaint()}"
        await driver.pace(_KEYS // 50, 0.5)
    return ""


async def _drained(driver: Driver, process: Process) -> bool:
    """True: the peer did not finish in time."""
    deadline = time.monotonic() + _DRAIN
    while driver.due and time.monotonic() < deadline and not process.ended:  # noqa: ASYNC110  peers send no event
        await asyncio.sleep(0.05)
    return bool(driver.due)


def _fill(result: Result, driver: Driver, process: Process, start: float, *, behind: bool) -> None:
    taken = [seconds * 1000 for due, seconds in driver.received if due >= start]
    result.outputs, result.wrong = len(driver.received), driver.problem
    result.complete = not behind
    own, broker, others = process.cpu_between(start, start + _MEASURED)
    result.cpu_us, result.broker_cpu_us = own / PACE * 1e6, broker / PACE * 1e6
    result.rss_mb, result.others = process.peak_rss / 1e6, others / (os.cpu_count() or 1)
    if behind:
        result.error = (
            f"it falls behind at {PACE:,} events/s: {len(driver.due):,} results were not there {_DRAIN:.0f} s later"
        )
    elif taken:
        cuts = statistics.quantiles(taken, n=100)
        result.p50_ms, result.p99_ms, result.rate = cuts[49], cuts[98], PACE

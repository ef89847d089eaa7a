"""Reads over HTTP while a worker handles W at full speed, on the embedded log. Prints figures and ratios.

python -m benchmarks.http [--events N]      two processes: a worker with its API, and a client

1. Fill a log; start a worker on it. 2. Let it handle alone for some seconds: its throughput. 3. Ask for a key a
thousand times a second, at even distances: what that costs, and how long answers take. 4. Ask as fast as it answers,
key by key and in batches of 100. 5. When all is handled, ask one after the other: how long answers take at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import uvloop

from benchmarks.embedded import fill
from benchmarks.workloads.embedded_likes import app
from tidegate_app.api_server import open_api

KEYS = 100_000
ALONE = 5.0
ASKED = 6.0
RATE = 1000
BATCH = 100


# ---------------------------------------------------------------------------------------------------------- the worker


async def serve(directory: Path) -> None:
    app.host.flags = {"data": directory, "api": "127.0.0.1:0"}
    api = open_api(app, app.define().resolve(app.host.flags), until_end=False)
    assert api is not None
    await api.start()
    print(api.url.rpartition(":")[2], flush=True)
    await app.start()
    await asyncio.to_thread(sys.stdin.read)
    await api.stop()
    await app.stop()


@contextlib.asynccontextmanager
async def worker(directory: Path) -> AsyncIterator[tuple[int, int]]:
    process = subprocess.Popen(  # noqa: ASYNC220  nothing else runs yet
        [sys.executable, "-m", "benchmarks.http", "--serve", str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield int(await asyncio.to_thread(process.stdout.readline)), process.pid
    finally:
        process.kill()
        process.wait()


# ----------------------------------------------------------------------------------------------------------- who asks


class Connection:
    """A cheap client: sequential requests over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        size = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(answer[9:12]), await self._reader.readexactly(size)


def path_of(chance: random.Random) -> str:
    return f"/v1/services/counter/states/seen/keys/user-{chance.randrange(KEYS)}"


async def handled(connection: Connection) -> int:
    _, body = await connection.ask("GET", "/v1/workers")
    return sum(task["handled"] for worker in json.loads(body)["workers"] for task in worker["tasks"])


async def throughput(connection: Connection, seconds: float, during: object = None) -> float:
    before, started = await handled(connection), time.perf_counter()
    await (asyncio.sleep(seconds) if during is None else during)  # type: ignore[misc]
    return (await handled(connection) - before) / (time.perf_counter() - started)


async def paced(connections: list[Connection], rate: float, seconds: float) -> list[float]:
    """Point reads at a fixed rate, independent of the responses. Returns the latency of each, measured from its due
    time."""
    loop, chance, took = asyncio.get_running_loop(), random.Random(1), list[float]()
    begin, total = loop.time() + 0.05, int(rate * seconds)
    due = iter(range(total))

    async def work(connection: Connection) -> None:
        for number in due:
            at = begin + number / rate
            if (wait := at - loop.time()) > 0:
                await asyncio.sleep(wait)
            await connection.ask("GET", path_of(chance))
            took.append(loop.time() - at)

    await asyncio.gather(*map(work, connections))
    return took


async def flat_out(connections: list[Connection], seconds: float, *, batch: bool) -> float:
    """Requests as fast as they are answered. Returns keys per second."""
    loop, chance, answered = asyncio.get_running_loop(), random.Random(2), 0
    until, started = loop.time() + seconds, loop.time()

    async def work(connection: Connection) -> None:
        nonlocal answered
        while loop.time() < until:
            if batch:
                body = json.dumps({"keys": [f"user-{chance.randrange(KEYS)}" for _ in range(BATCH)]}).encode()
                status, _ = await connection.ask("POST", "/v1/services/counter/states/seen/batch", body)
                answered += BATCH if status == 200 else 0
            else:
                await connection.ask("GET", path_of(chance))
                answered += 1

    await asyncio.gather(*map(work, connections))
    return answered / (loop.time() - started)


def percentile(values: list[float], share: float) -> float:
    return 1000 * sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure(port: int, pid: int, events: int) -> None:
    cpu = psutil.Process(pid)
    watch = await Connection.open(port)
    while (await watch.ask("GET", "/readyz"))[0] != 200:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    connections = [await Connection.open(port) for _ in range(64)]
    while await handled(watch) < events // 20:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    alone = await throughput(watch, ALONE)
    took: list[float] = []

    async def read() -> None:
        took.extend(await paced(connections, RATE, ASKED))

    beside = await throughput(watch, ASKED, read())
    busy = await flat_out(connections[:32], 3, batch=False)
    left = events - await handled(watch)
    note = "" if left > 0 else "  (all was handled meanwhile: give more --events)"
    print(f"busy: {alone:,.0f} events/s alone; with {len(took) / ASKED:,.0f} reads/s {beside:,.0f}, "
          f"a loss of {1 - beside / alone:.0%}{note}")  # fmt: skip
    print(f"busy: reads p50 {percentile(took, 0.5):.1f} ms, p99 {percentile(took, 0.99):.1f} ms; "
          f"flat out {busy:,.0f} reads/s")  # fmt: skip
    while await handled(watch) < events:  # noqa: ASYNC110
        await asyncio.sleep(0.5)
    await asyncio.sleep(1)
    idle = await paced(connections[:4], 200, 5)
    print(f"idle: reads p50 {percentile(idle, 0.5):.1f} ms, p99 {percentile(idle, 0.99):.1f} ms")
    for batch, what in ((False, "reads"), (True, f"keys in batches of {BATCH}")):
        spent, rate = cpu.cpu_times(), await flat_out(connections[:16], 3, batch=batch)
        now = cpu.cpu_times()
        cost = (now.user + now.system - spent.user - spent.system) / (rate * 3)
        print(f"idle: flat out {rate:,.0f} {what} per second, {cost * 1e6:,.1f} µs of CPU each: "
              f"{1 / cost:,.0f} per second and core")  # fmt: skip


async def main(events: int) -> None:
    directory = Path(tempfile.mkdtemp(prefix="tidegate-http-"))
    try:
        await fill(directory, events, KEYS, each_once=False)
        async with worker(directory) as (port, pid):
            await measure(port, pid, events)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Reads over HTTP beside a busy worker.")
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    uvloop.run(serve(given.serve) if given.serve else main(given.events))

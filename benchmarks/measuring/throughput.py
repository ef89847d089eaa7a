"""One throughput measurement: a peer in its own process on a full topic, observed from outside.

The harness polls the committed end offsets of the output a few times per second, which costs almost nothing, and reads
the outputs after the run. The broker has recorded their append times.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring.cluster import Cluster
from benchmarks.measuring.process import Process, running
from benchmarks.peers.catalog import Row
from benchmarks.peers.setup import SetupError
from benchmarks.workloads.ads import GRACE, WINDOW, campaigns
from benchmarks.workloads.base import Check, Verdict, Workload

__all__ = ("Bench", "Result", "command_of", "environment_of", "throughput")

_PAUSE = 0.2
_FIRST_OUTPUT = 120.0
_QUIET = 3.0
"""A run has ended after so many seconds without output: three times the longest commit interval."""
_STALLED = 20.0


@dataclass(frozen=True)
class Bench:
    """The environment of the measurements."""

    cluster: Cluster
    broker_pid: int | None
    seconds: float
    """The time limit of a run from its first output; three times as long for a fast row."""


@dataclass(kw_only=True)
class Result:
    """One run of one row, or the reason why there is none."""

    row: str
    workload: str
    error: str = ""
    """The peer could not be run."""
    wrong: str = ""
    """It ran, but its outputs are wrong."""
    complete: bool = False
    outputs: int = 0
    handled: int = 0
    rate: float = 0.0
    cpu_us: float = 0.0
    broker_cpu_us: float = 0.0
    rss_mb: float = 0.0
    others: float = 0.0
    """The share of the machine used by other processes during the run."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def environment_of(row: Row, kind: str, names: Mapping[str, str], bench: Bench, directory: Path) -> dict[str, str]:
    """The environment of every peer's program. names: the input, the output and the partitions of the input."""
    known = directory / "campaigns.json"
    known.write_text(json.dumps(campaigns()))
    aim = "latency" if kind == "latency" else "throughput"
    return {
        "BENCH_WORKLOAD": "w" if kind == "latency" else kind,
        "BENCH_AIM": aim,
        "BENCH_BROKER": bench.cluster.bootstrap,
        "BENCH_ID": f"bench-{uuid.uuid4().hex[:8]}",
        "BENCH_DATA": str(directory),
        "BENCH_GUARANTEE": row.guarantee,
        "BENCH_COMMIT_MS": str(row.interval(kind)),
        "BENCH_CAMPAIGNS": str(known),
        "BENCH_WINDOW_MS": str(WINDOW),
        "BENCH_GRACE_MS": str(GRACE),
        **{f"BENCH_{name.upper()}": value for name, value in (*names.items(), *row.options.items())},
    }


def command_of(row: Row, environment: Mapping[str, str]) -> list[str | Path]:
    command = row.command(row)
    if not row.name.startswith("tidegate"):
        return command
    return [
        *command,
        f"benchmarks.apps.{environment['BENCH_WORKLOAD']}:app",
        "--broker", f"kafka://{environment['BENCH_BROKER']}",
        "--data", environment["BENCH_DATA"],
        "--commit-interval", str(int(environment["BENCH_COMMIT_MS"]) / 1000),
    ]  # fmt: skip


async def throughput(bench: Bench, row: Row, workload: Workload) -> Result:
    """1. Make the output topic. 2. Run the peer. 3. Check the outputs. 4. Delete the run's topics."""
    cluster = bench.cluster
    before = await cluster.topics()
    directory = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    output = f"out-{uuid.uuid4().hex[:8]}"
    names = {"input": workload.topic, "output": output, "partitions": str(workload.partitions)}
    result = Result(row=row.name, workload=workload.kind)
    try:
        await cluster.create_output(output, row.output_partitions)
        environment = environment_of(row, workload.kind, names, bench, directory)
        command = await asyncio.to_thread(command_of, row, environment)
        async with running(command, environment, directory / "peer.log", bench.broker_pid) as process:
            seconds = bench.seconds * (3 if row.fast else 1)
            stopped = await _watch(cluster, process, workload, output, seconds, result)
            await process.stop()
        if not result.error:
            _fill(result, await _verdict(cluster, workload.check(clock=row.clock), output, stopped), process)
    except SetupError as error:
        result.error = str(error)
    finally:
        await cluster.delete(await cluster.topics() - before)
        shutil.rmtree(directory, ignore_errors=True)
    return result


async def _watch(
    cluster: Cluster, process: Process, workload: Workload, output: str, seconds: float, result: Result
) -> float | None:
    """Wait for the end of the run (None), or stop it and return when."""
    least = workload.least_outputs
    started = changed = time.monotonic()
    first, known = 0.0, 0
    while True:
        process.sample()
        committed = sum((await cluster.end(output)).values())
        now = time.monotonic()
        if committed != known:
            known, changed, first = committed, now, first or now
        if process.ended:
            result.error = f"it ended with exit code {process.popen.returncode}:\n{process.complaint()}"
            return None
        if not first and now - started > _FIRST_OUTPUT:
            result.error = f"no output within {_FIRST_OUTPUT:.0f} s:\n{process.complaint()}"
            return None
        quiet = now - changed
        if first and quiet > (_QUIET if known >= least else _STALLED):
            return None
        if first and now - first > seconds:
            return time.time()
        await asyncio.sleep(_PAUSE)


async def _verdict(cluster: Cluster, check: Check, output: str, stopped: float | None) -> Verdict:
    async for records in cluster.read(output):
        check.take(records)
    return check.verdict(stopped=stopped)


def _fill(result: Result, verdict: Verdict, process: Process) -> None:
    own, broker, others = process.cpu_between(verdict.start, verdict.end)
    result.complete, result.outputs, result.handled = verdict.complete, verdict.outputs, verdict.handled
    result.wrong, result.rate = verdict.problem, verdict.rate
    if verdict.rate:
        result.cpu_us, result.broker_cpu_us = own / verdict.rate * 1e6, broker / verdict.rate * 1e6
    result.rss_mb, result.others = process.peak_rss / 1e6, others / (os.cpu_count() or 1)

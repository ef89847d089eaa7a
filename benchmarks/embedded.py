"""W on the embedded log, one process, exactly once. The log is filled by another process, so that the measured memory
is the worker's own.

python -m benchmarks.embedded fill DIR EVENTS KEYS [--each-once]
python -m benchmarks.embedded run DIR          handles the log's records, prints a line of JSON
python -m benchmarks.embedded bare EVENTS KEYS      the loop to compare with
"""

from __future__ import annotations

import resource
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import uvloop

from benchmarks.workloads.embedded_likes import app, bare_loop
from benchmarks.workloads.events import likes_of
from tidegate.engine.topology.plan import Plan
from tidegate.host.host import open_log
from tidegate.keys import partition_of
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.time.clock import SystemClock

__all__ = ("fill", "run")


async def fill(directory: Path, events: int, keys: int, *, each_once: bool) -> None:
    definition = app.define()
    settings = definition.resolve({"data": directory}).settings
    log = open_log(definition.id, settings, SystemClock())
    await log.start()
    plan = Plan(definition.id, definition.services, definition.topics, settings, await log.topics())
    await log.create(plan.specs)
    writer = await log.writer()
    stream = likes_of(events, keys, each_once=each_once)
    while chunk := list(islice(stream, 10_000)):
        records: dict[TopicPartition, list[NewRecord]] = {}
        for key, value, at in chunk:
            records.setdefault(TopicPartition("likes", partition_of(key, 4)), []).append((key, value, at, ()))
        await writer.append(records)
    await log.stop()


async def run(directory: Path) -> dict[str, Any]:
    app.host.flags, app.host.until_end = {"data": directory}, True
    await app.start()
    before = _handled()
    started, cpu = time.perf_counter(), time.process_time()
    await app.wait()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    events = _handled() - before
    metrics = app.host.engine.metrics
    slices = {
        sample.labels["le"]: sample.value
        for metric in metrics.slices.collect()
        for sample in metric.samples
        if sample.name.endswith("_bucket")
    }
    syncs = getattr(app.host.log, "syncs", None)
    await app.stop()
    if app.failure is not None:
        raise app.failure
    return {
        "events": events,
        "rate": events / seconds,
        "cpu_us": cpu / events * 1e6,
        "slice_p99_ms": _quantile(slices, 0.99) * 1000,
        "slice_max_ms": _quantile(slices, 1.0) * 1000,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "syncs": syncs,
    }


def _handled() -> float:
    samples = [s for metric in app.host.engine.metrics.handled.collect() for s in metric.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


def _quantile(buckets: dict[str, float], share: float) -> float:
    """The upper bound of the histogram bucket of this quantile."""
    total = buckets["+Inf"]
    return next((float(bound) for bound, count in buckets.items() if count >= share * total), float("inf"))


def main(arguments: list[str]) -> None:
    command, directory, *rest = arguments
    if command == "fill":
        uvloop.run(fill(Path(directory), int(rest[0]), int(rest[1]), each_once="--each-once" in rest))
    elif command == "run":
        sys.stdout.buffer.write(orjson.dumps(uvloop.run(run(Path(directory)))) + b"\n")
    elif command == "bare":
        values = [value for _, value, _ in likes_of(int(directory), int(rest[0]))]
        sys.stdout.buffer.write(orjson.dumps({"rate": bare_loop(values)}) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])

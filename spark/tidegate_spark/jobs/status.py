"""The progress of jobs, read from their checkpoints on disk, without a Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.client.log_access import LogAccess
from tidegate.interop import TopicPartition
from tidegate_spark.errors import SparkError
from tidegate_spark.jobs.contract import Job, Table
from tidegate_spark.jobs.paths import TableLocations

if TYPE_CHECKING:
    from tidegate import App

__all__ = ("job_progress",)


async def job_progress(app: App, jobs: Iterable[Job], flags: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """A row per output: its batches, its lag in records, its files."""
    places = TableLocations.of(app, flags)
    if not places.local:
        raise SparkError(f"the tables are in {places.root}: status reads local directories only")
    jobs = list(jobs)
    topics = {given.name for job in jobs for given in job.sources}
    ends = await _ends(LogAccess(app.define(), flags), topics)
    return [row for job in jobs for row in _rows(job, places, ends)]


def _rows(job: Job, places: TableLocations, ends: Mapping[TopicPartition, int]) -> Iterable[dict[str, Any]]:
    outputs = [*job.outputs, *((job.quarantine,) if job.streams else ())]
    for output in outputs:
        checkpoint = Path(places.checkpoint(job.name, output.name))
        batches = _numbers(checkpoint / "commits")
        last = max(batches, default=None)
        when = None if last is None else (checkpoint / "commits" / str(last)).stat().st_mtime
        table = Path(places.table(output.name)) if isinstance(output, Table) else None
        yield {
            "job": job.name,
            "output": output.name,
            "batches": None if not job.streams else 0 if last is None else last + 1,
            "behind": _behind(checkpoint, last, job, ends) if job.streams else None,
            "files": None if table is None else sum(1 for _ in table.glob("**/[!_.]*.parquet")),
            "last_batch": None if when is None else datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds"),
        }


def _numbers(directory: Path) -> list[int]:
    return [int(path.name) for path in directory.glob("[0-9]*")] if directory.exists() else []


def _behind(checkpoint: Path, batch: int | None, job: Job, ends: Mapping[TopicPartition, int]) -> int:
    """The lag over the topics that the output reads: an upper bound, since offsets have gaps."""
    if batch is None:
        mine, reached = {given.name for given in job.sources}, dict[TopicPartition, int]()
    else:
        reached = _reached(checkpoint / "offsets" / str(batch))
        mine = {source.topic for source in reached}
    return sum(max(0, end - reached.get(source, 0)) for source, end in ends.items() if source.topic in mine)


def _reached(path: Path) -> dict[TopicPartition, int]:
    """The offsets in Spark's file: a version, a line about the batch, and a line of offsets per source. Kafka's are
    {"TOPIC": {"0": 5}}, those of an embedded log {"topic": "TOPIC", "0": 5}."""
    found: dict[TopicPartition, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[2:]:
        offsets = json.loads(line) if line.startswith("{") else {}
        by_topic = {offsets["topic"]: offsets} if isinstance(offsets.get("topic"), str) else offsets
        for topic, positions in by_topic.items():
            found |= {TopicPartition(topic, int(n)): int(at) for n, at in positions.items() if n.isdecimal()}
    return found


async def _ends(access: LogAccess, topics: Iterable[str]) -> dict[TopicPartition, int]:
    async with access.observed() as observer:
        if observer is None:
            return {}
        known = await observer.topics()
        sources = [TopicPartition(name, n) for name in topics if name in known for n in range(known[name].partitions)]
        return dict(await observer.end_offsets(sources))

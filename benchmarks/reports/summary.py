"""The summary of many runs: medians per row, and ratios between rows, computed from the saved plain data."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measuring.throughput import Result
from benchmarks.peers.catalog import ROWS, Row

__all__ = ("RATIOS", "Line", "disturbance", "lines_of", "machine", "ratios_of", "section_of")

# the compared rows, and the texts of the comparisons
RATIOS: Sequence[tuple[str, str, str]] = (
    ("tidegate", "kafka-streams", "Kafka Streams, exactly once"),
    ("tidegate", "flink-rocksdb", "Flink on RocksDB, exactly once"),
    ("tidegate", "flink-heap", "Flink on the heap, exactly once"),
    ("tidegate", "quix", "Quix Streams, exactly once"),
    ("tidegate", "faust-table", "a Faust agent with a Table, at least once"),
    ("tidegate", "faust-dict", "a Faust agent with a dict, at least once"),
    ("tidegate", "bytewax", "Bytewax, at least once"),
    ("tidegate", "bare", "the bare loop"),
    ("tidegate-2p", "tidegate", "2 processes against one"),
    ("tidegate-64", "tidegate", "64 partitions against 4"),
)


@dataclass(frozen=True)
class Line:
    """One row of a table: a peer's medians, or the reason why there are none."""

    row: Row
    runs: int
    problem: str
    """WRONG and why, or the error; empty: all runs were right."""
    medians: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.medians[name]

    @property
    def good(self) -> bool:
        return not self.problem


def section_of(results: Iterable[Result], events: int) -> dict[str, Any]:
    """The runs of one workload, as they are saved."""
    return {"events": events, "machine": machine(), "runs": [result.as_dict() for result in results]}


def lines_of(section: Mapping[str, Any]) -> list[Line]:
    """The rows that were run, in the order of the catalogue."""
    runs = {row.name: [run for run in section["runs"] if run["row"] == row.name] for row in ROWS}
    return [_line(row, runs[row.name]) for row in ROWS if runs[row.name]]


def _line(row: Row, runs: list[dict[str, Any]]) -> Line:
    wrong = next((run["wrong"] for run in runs if run["wrong"]), "")
    error = next((run["error"] for run in runs if run["error"]), "")
    problem = f"WRONG: {wrong}" if wrong else error
    names = ("rate", "handled", "others", "cpu_us", "broker_cpu_us", "rss_mb", "p50_ms", "p99_ms")
    return Line(row, len(runs), problem, {name: statistics.median(run[name] for run in runs) for name in names})


def ratios_of(lines: Sequence[Line]) -> list[tuple[str, float]]:
    """The ratios of which both sides were measured."""
    rates = {line.row.name: line["rate"] for line in lines if line.good and line["rate"]}
    return [
        (label, rates[subject] / rates[other])
        for subject, other, label in RATIOS
        if subject in rates and other in rates
    ]


def disturbance(sections: Iterable[Mapping[str, Any]]) -> float:
    """The share of the machine used by other processes in the median run. Above 0.1, results are unreliable."""
    runs = [run["others"] for section in sections for run in section.get("runs", ()) if not run["error"]]
    return statistics.median(runs) if runs else 0.0


def machine() -> dict[str, str]:
    """Where and when it was measured."""
    return {
        "day": datetime.now(UTC).date().isoformat(),
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{round(psutil.virtual_memory().total / 2**30)} GB",
        "python": platform.python_version(),
        "java": _java(),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _java() -> str:
    if shutil.which("java") is None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (done.stderr or done.stdout).splitlines()[0].split('"')[1]

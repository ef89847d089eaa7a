"""W on the embedded log, alternating with a bare loop in memory, and with a large state."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.reports.summary import machine
from benchmarks.reports.tables import markdown_row

__all__ = ("embedded_markdown", "embedded_section", "embedded_table")


def measure(*arguments: str, program: str = "benchmarks.embedded") -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.stdout else {}


_BARE = "bare loop: parse with orjson, count in a dict, nothing durable"
_FLOOR = "floor: the durable steps of W in a loop, nothing around them"
_USUAL = "Tidegate, 100 k keys"


def small(events: int, rounds: int) -> dict[str, dict[str, Any]]:
    """W with 100 k keys, the bare loop and the floor, in alternation."""
    results: list[dict[str, dict[str, Any]]] = []
    for _ in range(rounds):
        directory = tempfile.mkdtemp(prefix="tidegate-bench-")
        try:
            measure("fill", directory, str(events), "100000")
            results.append(
                {
                    _BARE: measure("bare", str(events), "100000"),
                    _FLOOR: measure(str(events), "100000", program="benchmarks.floors.embedded_loop"),
                    _USUAL: measure("run", directory),
                }
            )
        finally:
            shutil.rmtree(directory)
    return {title: {**results[-1][title], **_medians(title, results)} for title in results[-1]}


def _medians(title: str, results: list[dict[str, dict[str, Any]]]) -> dict[str, float]:
    """The ratio is computed per round: other processes slow down both runs of a round alike."""
    return {
        "rate": statistics.median(result[title]["rate"] for result in results),
        "of_bare": statistics.median(result[title]["rate"] / result[_BARE]["rate"] for result in results),
    }


def large(keys: int, events: int) -> dict[str, Any]:
    """The same with many keys: first each key once, which fills the state, then `events` at random, measured."""
    directory = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    try:
        measure("fill", str(directory), str(keys), str(keys), "--each-once")
        filled = measure("run", str(directory))
        measure("fill", str(directory), str(events), str(keys))
        return {"filling": filled, **measure("run", str(directory))}
    finally:
        shutil.rmtree(directory)


def embedded_section(events: int, rounds: int, keys: int) -> dict[str, Any]:
    """keys: for the run with a large state; 0 leaves it out."""
    rows = small(events, rounds)
    if keys:
        big = large(keys, events)
        rows[f"Tidegate, filling {keys:,} keys"] = big.pop("filling")
        rows[f"Tidegate, {keys:,} keys at random"] = big
    return {"events": events, "rounds": rounds, "machine": machine(), "rows": rows}


_HEADER = ("", "events/s", "of the bare loop", "CPU µs/event", "RSS MB", "slice p99")


def _cells(section: Mapping[str, Any]) -> list[tuple[str, ...]]:
    bare = next(iter(section["rows"].values()))["rate"]
    return [
        (title, f"{result['rate']:,.0f}", f"{result.get('of_bare', result['rate'] / bare):.2f}", *_details(result))
        for title, result in section["rows"].items()
    ]


def _details(result: Mapping[str, Any]) -> tuple[str, ...]:
    if "slice_p99_ms" not in result:
        return f"{result['cpu_us']:.1f}" if "cpu_us" in result else "", "", ""
    return f"{result['cpu_us']:.1f}", f"{result['rss_mb']:.0f}", f"≤ {result['slice_p99_ms']:g} ms"


def embedded_table(section: Mapping[str, Any]) -> Table:
    title = f"W on the embedded log, {section['events']:,} events, median of {section['rounds']}"
    table = Table(*_HEADER, title=title, title_justify="left")
    for cells in _cells(section):
        table.add_row(*cells)
    return table


def embedded_markdown(section: Mapping[str, Any]) -> str:
    rows = (_HEADER, ("---", *["---:"] * (len(_HEADER) - 1)), *_cells(section))
    return "\n".join(map(markdown_row, rows))

"""W on the embedded log, in turns with a bare loop in memory, and with a large state."""

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

from benchmarks.report import markdown_row
from benchmarks.summary import machine

__all__ = ("embedded_markdown", "embedded_section", "embedded_table")


def measure(*arguments: str) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.embedded", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.stdout else {}


def small(events: int, rounds: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """W with 100 k keys and the bare loop, in turns."""
    results = []
    for _ in range(rounds):
        directory = tempfile.mkdtemp(prefix="tidegate-bench-")
        try:
            measure("fill", directory, str(events), "100000")
            results.append((measure("bare", str(events), "100000"), measure("run", directory)))
        finally:
            shutil.rmtree(directory)
    return results


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
    pairs = small(events, rounds)
    bare = {**pairs[-1][0], "rate": statistics.median(pair[0]["rate"] for pair in pairs)}
    usual = {**pairs[-1][1], "rate": statistics.median(pair[1]["rate"] for pair in pairs)}
    rows = {"bare loop: parse with orjson, count in a dict, nothing durable": bare, "Tidegate, 100 k keys": usual}
    if keys:
        big = large(keys, events)
        rows[f"Tidegate, filling {keys:,} keys"] = big.pop("filling")
        rows[f"Tidegate, {keys:,} keys at random"] = big
    return {"events": events, "rounds": rounds, "machine": machine(), "rows": rows}


_HEADER = ("", "events/s", "of the bare loop", "CPU µs/event", "RSS MB", "slice p99")


def _cells(section: Mapping[str, Any]) -> list[tuple[str, ...]]:
    bare = next(iter(section["rows"].values()))["rate"]
    return [
        (title, f"{result['rate']:,.0f}", f"{result['rate'] / bare:.2f}", *_details(result))
        for title, result in section["rows"].items()
    ]


def _details(result: Mapping[str, Any]) -> tuple[str, ...]:
    if "slice_p99_ms" not in result:
        return "", "", ""
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

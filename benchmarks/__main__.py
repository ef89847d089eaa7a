"""`make bench`: runs the benchmarks alternately, takes medians, prints figures and the ratios that matter."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

__all__ = ("main",)

console = Console()


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


@click.command()
@click.option("--events", default=500_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--keys", default=5_000_000, show_default=True, help="For the run with a large state; 0 leaves it out.")
def main(events: int, rounds: int, keys: int) -> None:
    """Workload W: JSON likes, a persistent counter per key, an output for every second event, exactly once."""
    pairs = small(events, rounds)
    bare = statistics.median(pair[0]["rate"] for pair in pairs)
    rate = statistics.median(pair[1]["rate"] for pair in pairs)
    last = pairs[-1][1]
    table = Table(title=f"W on the embedded log, {events:,} events, median of {rounds}", title_justify="left")
    for column in ("", "events/s", "ratio", "CPU µs/event", "RSS MB", "slice p99", "slice max"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("bare loop (orjson + dict, in memory)", f"{bare:,.0f}", "1.00")
    table.add_row("Tidegate, 100 k keys", f"{rate:,.0f}", f"{rate / bare:.2f}", *_details(last))
    if keys:
        big = large(keys, events)
        table.add_row(f"Tidegate, filling {keys:,} keys", f"{big['filling']['rate']:,.0f}",
                      f"{big['filling']['rate'] / bare:.2f}", *_details(big["filling"]))  # fmt: skip
        table.add_row(f"Tidegate, {keys:,} keys", f"{big['rate']:,.0f}", f"{big['rate'] / bare:.2f}", *_details(big))
    console.print(table)
    if keys:
        console.print(f"{keys:,} keys against 100 k: {big['rate'] / rate:.2f} of the speed")


def _details(result: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{result['cpu_us']:.1f}",
        f"{result['rss_mb']:.0f}",
        f"≤ {result['slice_p99_ms']:g} ms",
        f"≤ {result['slice_max_ms']:g} ms",
    )


if __name__ == "__main__":
    main()

"""`make bench`: measures Tidegate and its peers in alternating rounds, and prints medians and ratios."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.console import Console

from benchmarks.matrix import Matrix, Plan
from benchmarks.measuring.cluster import Cluster
from benchmarks.measuring.throughput import Bench, Result
from benchmarks.peers.catalog import ROWS, Row, choose
from benchmarks.reports.embedded_section import embedded_section, embedded_table
from benchmarks.reports.publish import publish
from benchmarks.reports.summary import disturbance, lines_of, ratios_of, section_of
from benchmarks.reports.tables import problems, terminal
from tidegate_app.kafka.broker import Broker

__all__ = ("main",)

_SAVED = Path(__file__).parent / "results" / "local"
_DISTURBED = 0.1
_WORKLOADS = ("w", "yahoo", "latency", "embedded")

# a log file has no terminal width
console = Console(width=None if sys.stdout.isatty() else 130)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--peers", default="quick", help=f"quick, all, or names: {', '.join(row.name for row in ROWS)}.")
@click.option("--workloads", default="w,embedded", help=f"Of {', '.join(_WORKLOADS)}.")
@click.option("--events", default=2_000_000, help="In the topics of W and Yahoo. A JVM needs 2 million to be warm.")
@click.option("--seconds", default=15.0, help="A slow row's run ends so long after its first output; a fast one's 3 ×.")
@click.option("--rounds", default=3, help="How often rows that are fast are measured; the others are measured once.")
@click.option("--minutes", default=23.0, help="No further round begins that would end after this.")
@click.option("--quick", is_flag=True, help="Small and once: to see that everything works.")
@click.option("--broker", default="", help="HOST:PORT of a running broker; by default one is started.")
@click.option("--keys", default=5_000_000, help="Of the large state on the embedded log; 0 leaves it out.")
@click.option("--publish", "publishing", is_flag=True, help="Put the figures into the README and docs/benchmarks.md.")
def main(
    peers: str,
    workloads: str,
    events: int,
    seconds: float,
    rounds: int,
    minutes: float,
    quick: bool,
    broker: str,
    keys: int,
    publishing: bool,
) -> None:
    """Measure Tidegate and its peers: the same topic, the same guarantee, a real broker, every output checked."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # deleted topics are expected here
    kinds = _kinds(workloads)
    if quick:
        events, seconds, rounds, keys = min(events, 300_000), min(seconds, 8.0), 1, 0
    plan = Plan(rows=_rows(peers), workloads=[kind for kind in kinds if kind != "embedded"], events=events,
                rounds=rounds, minutes=minutes)  # fmt: skip
    sections: dict[str, Any] = {}
    if plan.workloads:
        with _broker(broker) as (address, pid):
            results = _interruptible(_measure(plan, address, pid, seconds))
        sections = {kind: section_of([r for r in results if r.workload == kind], events) for kind in plan.workloads}
    if "embedded" in kinds:
        console.print("[dim]W on the embedded log[/dim]")
        sections["embedded"] = embedded_section(min(events, 500_000), rounds, keys)
    _finish(sections, publishing=publishing)


def _kinds(workloads: str) -> list[str]:
    kinds = workloads.split(",")
    if unknown := set(kinds) - set(_WORKLOADS):
        raise click.BadParameter(
            f"{', '.join(sorted(unknown))}: choose of {', '.join(_WORKLOADS)}", param_hint="--workloads"
        )
    return kinds


def _rows(peers: str) -> list[Row]:
    try:
        return choose(peers)
    except KeyError as error:
        names = ", ".join(row.name for row in ROWS)
        raise click.BadParameter(f"{error.args[0]}: choose of {names}", param_hint="--peers") from None


@contextlib.contextmanager
def _broker(given: str) -> Iterator[tuple[str, int | None]]:
    """The broker's address, and its process if it was started here."""
    if given:
        yield given, None
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-broker-", ignore_cleanup_errors=True) as directory:
        started = Broker(Path(directory))
        console.print("[dim]starting a broker[/dim]")
        started.start()
        try:
            yield started.address, started.pid
        finally:
            started.stop()


async def _measure(plan: Plan, address: str, pid: int | None, seconds: float) -> list[Result]:
    async with Cluster.connect(address) as cluster:
        matrix = Matrix(Bench(cluster, pid, seconds), plan, _teller())
        await matrix.run()
    return matrix.results


def _teller() -> Any:
    started = time.monotonic()

    def tell(what: str, row: Row | None, result: Result | None) -> None:
        clock = f"[dim]{time.monotonic() - started:5.0f} s[/dim]"
        if result is None:
            console.print(f"{clock} [dim]{what}[/dim]", highlight=False)
        else:
            console.print(f"{clock} {_outcome(result)}", highlight=False, markup=True)

    return tell


def _outcome(result: Result) -> str:
    label = f"{result.workload}: {result.row}"
    if result.error:
        return f"{label}: [red]{_plain(result.error)}[/red]"
    if result.wrong:
        return f"{label}: [red]WRONG: {_plain(result.wrong)}[/red]"
    if result.workload == "latency":
        return f"{label}: p50 {result.p50_ms:.0f} ms, p99 {result.p99_ms:.0f} ms, all outputs right"
    part = "" if result.complete else f" ({result.handled:,} events until it was ended)"
    return f"{label}: {result.rate:,.0f} events/s{part}, {result.outputs:,} outputs, all right"


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def _interruptible(work: Any) -> list[Result]:
    """On Ctrl-C and SIGTERM, stop the started processes, then exit."""

    async def run() -> list[Result]:
        task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return list(await task)

    try:
        return uvloop.run(run())
    except asyncio.CancelledError:
        console.print("[red]interrupted[/red]: what was started is stopped")
        sys.exit(130)


def _finish(sections: dict[str, Any], *, publishing: bool) -> None:
    for kind, section in sections.items():
        console.print(embedded_table(section) if kind == "embedded" else terminal(kind, section))
        for problem in [] if kind == "embedded" else problems(lines_of(section)):
            console.print(f"  [red]{_plain(problem)}[/red]", highlight=False)
        if kind == "w":
            for label, times in ratios_of(lines_of(section)):
                console.print(f"  Tidegate, {label}: {times:.2f} ×", highlight=False)
    _SAVED.mkdir(parents=True, exist_ok=True)
    saved = _SAVED / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    saved.write_text(json.dumps(sections, indent=1, ensure_ascii=False))
    console.print(f"[dim]saved in {saved}[/dim]", soft_wrap=True)
    others = disturbance(sections.values())
    if others > _DISTURBED:
        console.print(f"[red]Other processes used {others:.0%} of the machine: these figures are not worth much.[/red]")
    if publishing and others > _DISTURBED:
        console.print("[red]Nothing is published. Run it again when the machine has nothing else to do.[/red]")
        sys.exit(1)
    if publishing:
        publish(sections)
        console.print("[dim]README.md and docs/benchmarks.md have the figures now[/dim]")


if __name__ == "__main__":
    main()

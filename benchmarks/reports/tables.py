"""The tables: for the terminal, and as Markdown for the README and docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from benchmarks.peers.catalog import ROWS
from benchmarks.reports.summary import Line, lines_of, ratios_of

__all__ = ("details", "markdown_row", "overview", "problems", "terminal")

_ONCE = {"exactly_once": "exactly once", "at_least_once": "at least once"}
_TITLES = {
    "w": "W: a counter per key, an output for every second event",
    "yahoo": "Yahoo: views per campaign in 10 s windows, current counts every second",
    "latency": "Latency of W at 10,000 events/s",
}


def terminal(kind: str, section: Mapping[str, Any]) -> Table:
    lines = lines_of(section)
    table = Table(title=_TITLES[kind], title_justify="left")
    header, *rows = _cells(kind, lines)
    for number, column in enumerate(header):
        table.add_column(column, justify="left" if number < 2 else "right", overflow="fold")
    for cells in rows:
        table.add_row(*cells)
    return table


def details(kind: str, section: Mapping[str, Any]) -> str:
    """One workload with all measurements, in Markdown."""
    lines = lines_of(section)
    events = f", {section['events']:,} events" if kind != "latency" else ""
    parts = [f"### {_TITLES[kind]}{events}", _markdown(_cells(kind, lines)), _machine(section)]
    parts += ["\n".join(f"- {problem}" for problem in problems(lines))] if problems(lines) else []
    if kind == "w" and (ratios := ratios_of(lines)):
        parts.insert(2, _markdown([["Tidegate against", "times as fast"], *([name, f"{x:.2f}"] for name, x in ratios)]))
    return "\n\n".join(parts)


def overview(sections: Mapping[str, Any]) -> str:
    """All workloads in one overview table, in Markdown."""
    found = {kind: {line.row.name: line for line in lines_of(section)} for kind, section in sections.items()}
    rows = {row.name: row for row in ROWS if any(row.name in lines for lines in found.values())}
    header = [
        "",
        "guarantee",
        "*W*, events/s",
        "CPU µs per event, own + broker",
        "*Yahoo*, events/s",
        "latency p50 / p99",
    ]
    table = [header]
    for name, row in rows.items():
        w, yahoo, paced = (found.get(kind, {}).get(name) for kind in ("w", "yahoo", "latency"))
        cpu = f"{w['cpu_us']:.1f} + {w['broker_cpu_us']:.1f}" if w and w.good else ""
        title = f"**{row.title}**" if name.startswith("tidegate") else row.title
        table.append([title, _ONCE[row.guarantee], _rate(w), cpu, _rate(yahoo), _paced(paced)])
    return _markdown(table)


def _cells(kind: str, lines: Sequence[Line]) -> list[list[str]]:
    if kind == "latency":
        table = [["", "guarantee", "p50", "p99", "CPU µs/event", "broker's", "RSS MB", "runs"]]
        return table + [
            [line.row.title, _ONCE[line.row.guarantee], *_or_problem(line, _milliseconds(line)), *_common(line)]
            for line in lines
        ]
    base = next((line["rate"] for line in lines if line.row.name == "tidegate" and line.good), 0.0)
    table = [["", "guarantee", "events/s", "of Tidegate", "CPU µs/event", "broker's", "RSS MB", "runs"]]
    return table + [
        [line.row.title, _ONCE[line.row.guarantee], *_or_problem(line, _speed(line, base)), *_common(line)]
        for line in lines
    ]


def _speed(line: Line, base: float) -> list[str]:
    return [f"{line['rate']:,.0f}", f"{line['rate'] / base:.2f}" if base else ""]


def _milliseconds(line: Line) -> list[str]:
    return [f"{line['p50_ms']:.0f} ms", f"{line['p99_ms']:.0f} ms"]


def _or_problem(line: Line, cells: list[str]) -> list[str]:
    return cells if line.good else [_short(line), ""]


def _common(line: Line) -> list[str]:
    if not line.good and not line["cpu_us"]:
        return ["", "", "", str(line.runs)]
    return [f"{line['cpu_us']:.1f}", f"{line['broker_cpu_us']:.1f}", f"{line['rss_mb']:.0f}", str(line.runs)]


def _rate(line: Line | None) -> str:
    return "" if line is None else f"{line['rate']:,.0f}" if line.good else _short(line)


def _paced(line: Line | None) -> str:
    return "" if line is None else f"{line['p50_ms']:.0f} / {line['p99_ms']:.0f} ms" if line.good else _short(line)


def _short(line: Line) -> str:
    if line.problem.startswith("it falls behind"):
        return "falls behind"
    return "WRONG" if line.problem.startswith("WRONG") else "cannot run"


def problems(lines: Sequence[Line]) -> list[str]:
    """The reasons of rows without results: the first and the last line of the output, which names the error."""
    reasons = []
    for line in lines:
        if not line.good:
            first, *rest = line.problem.splitlines()
            reasons.append(f"{line.row.title}, {_ONCE[line.row.guarantee]}: {first} {rest[-1] if rest else ''}".strip())
    return reasons


def _markdown(table: Sequence[Sequence[str]]) -> str:
    header, *rows = table
    marks = ["---" if number < 2 and len(header) > 2 else "---:" if number else "---" for number in range(len(header))]
    return "\n".join(map(markdown_row, (header, marks, *rows)))


def markdown_row(cells: Iterable[str]) -> str:
    """A vertical bar would end a cell."""
    return "|" + "".join(f" {cell.replace('|', '¦')} |" if cell else " |" for cell in cells)


def _machine(section: Mapping[str, Any]) -> str:
    where = section["machine"]
    return (
        f"Measured on {where['day']}: {where['processor']}, {where['memory']}, Python {where['python']}, "
        f"Java {where['java']}, the broker on the same machine."
    )

"""The report: one HTML page from the tables, read as plain Parquet. It needs no Spark and no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from examples.tinder_match.pipeline.charts import area, bars

__all__ = ("report",)

Row = dict[str, Any]

HOUR = 3_600_000
_WAITS = (("< 1 h", 1), ("1-6 h", 6), ("6-24 h", 24), ("1-3 d", 72), ("3-7 d", 168), ("1-2 w", 336), ("2-4 w", 800))
_STYLE = """
:root { --ink: #1d2330; --soft: #667085; --page: #f6f7f9; --card: #fff; --rule: #e4e7ec; --main: #d6336c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaf0; --soft: #98a2b3; --page: #12151c; --card: #1b202b; --rule: #2d3442; --main: #f06595; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 48px; }
h1 { font-size: 28px; margin: 0; } h2 { font-size: 16px; margin: 0 0 8px; }
p { color: var(--soft); margin: 4px 0 24px; }
.cards { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); margin-bottom: 16px; }
.charts { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); }
section, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 18px; }
.card b { display: block; font-size: 26px; line-height: 1.2; } .card span { color: var(--soft); font-size: 13px; }
section { overflow-x: auto; } svg { width: 100%; min-width: 440px; height: auto; }
.bar, .below { fill: var(--main); } .below { opacity: .18; }
.line { fill: none; stroke: var(--main); stroke-width: 2; } .grid { stroke: var(--rule); }
.tick { fill: var(--soft); font-size: 11px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; font-size: 13px; } th, td { text-align: right; padding: 5px 8px; }
th:first-child, td:first-child { text-align: left; } tr + tr td { border-top: 1px solid var(--rule); }
"""


def report(tables: Path) -> str:
    """The page, from a directory of tables."""
    days = sorted(_rows(tables, "days"), key=lambda row: row["day"])
    hours = sorted(_rows(tables, "matches_per_hour"), key=lambda row: row["hour"])
    waits = [row["waited_ms"] for row in _rows(tables, "like_to_match")]
    persons = sorted(_rows(tables, "people"), key=lambda row: (-row["matches"], row["person"]))
    body = "".join(
        [
            _header(days),
            _figures(days, waits, persons),
            '<div class="charts">',
            _section("Matches per hour", area(_hourly(hours), unit="matches")),
            _section("Matches per day", bars([(_day(row), row["matches"]) for row in days], unit="matches")),
            _section("From like to match", bars(_waiting(waits), unit="matches")),
            _section("Likes that became a match, per person", bars(_conversions(persons), unit="people")),
            _section("People with the most matches", _people(persons[:12])),
            _section("The last days", _days(days[-12:])),
            "</div>",
        ]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Matches: the day report</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>"
    )


def _rows(tables: Path, name: str) -> list[Row]:
    found: list[Row] = ds.dataset(tables / name, partitioning="hive").to_table().to_pylist()
    return found


# ------------------------------------------------------------------------------------------------------------- figures


def _hourly(hours: Sequence[Row]) -> list[tuple[str, float]]:
    """The last two weeks, hours without a match included. Days have names; where there are few, hours do."""
    known = {round(row["hour"].timestamp()): row["matches"] for row in hours}
    last = max(known, default=0)
    first = max(min(known, default=0), last - 14 * 24 * 3600)
    form = "%b %d" if last - first > 48 * 3600 else "%H:00"
    return [(_hour(at, form), known.get(at, 0)) for at in range(first, last + 1, 3600)]


def _hour(at: int, form: str) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return "" if "%b" in form and moment.hour else moment.strftime(form)


def _waiting(waits: Iterable[int]) -> list[tuple[str, float]]:
    counts = dict.fromkeys((label for label, _ in _WAITS), 0)
    for wait in waits:
        counts[next((label for label, hours in _WAITS if wait < hours * HOUR), _WAITS[-1][0])] += 1
    return list(counts.items())


def _conversions(persons: Iterable[Row]) -> list[tuple[str, float]]:
    """How many people have which share, in tenths."""
    counts = [0] * 10
    for row in persons:
        counts[min(9, int(row["conversion"] * 10))] += 1
    return [(f"{tenth * 10}-{tenth * 10 + 10} %", count) for tenth, count in enumerate(counts)]


def _hours(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    hours = milliseconds / HOUR
    return f"{hours / 24:.1f} d" if hours >= 48 else f"{hours:.1f} h"


def _day(row: Row) -> str:
    return str(row["day"].strftime("%b %d"))


# ---------------------------------------------------------------------------------------------------------------- page


def _header(days: Sequence[Row]) -> str:
    ends = dict.fromkeys(str(day["day"]) for day in (days[0], days[-1])) if days else ("nothing yet",)
    span = " to ".join(ends)
    return f"<h1>Matches</h1><p>{span}, by event time, from tables that Spark keeps exactly once.</p>"


def _figures(days: Sequence[Row], waits: Sequence[int], persons: Sequence[Row]) -> str:
    likes, found = sum(row["likes"] for row in days), sum(row["matches"] for row in days)
    liked, matched = sum(row["liked"] for row in persons), sum(row["matches"] for row in persons)
    figures = [
        (f"{likes:,}", "likes"),
        (f"{found:,}", "matches"),
        (f"{matched / liked:.1%}" if liked else "–", "of likes became a match"),
        (_hours(sorted(waits)[len(waits) // 2] if waits else None), "from like to match, median"),
        (f"{len(persons):,}", "people who liked someone"),
    ]
    return f'<div class="cards">{"".join(map(_card, figures))}</div>'


def _card(figure: tuple[str, str]) -> str:
    return f'<div class="card"><b>{escape(figure[0])}</b><span>{escape(figure[1])}</span></div>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _people(persons: Iterable[Row]) -> str:
    rows = [(row["person"], f"{row['matches']:,}", f"{row['liked']:,}", f"{row['conversion']:.0%}") for row in persons]
    return _table(("person", "matches", "liked", "conversion"), rows)


def _days(days: Iterable[Row]) -> str:
    rows = [
        (
            str(row["day"]),
            f"{row['likes']:,}",
            f"{row['matches']:,}",
            f"{row['people']:,}",
            _hours(row["median_wait_ms"]),
        )
        for row in days
    ]
    return _table(("day", "likes", "matches", "people", "median wait"), rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

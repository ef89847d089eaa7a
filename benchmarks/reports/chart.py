"""The bar chart as SVG, generated directly, so that it is small and reproducible."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.reports.summary import Line

__all__ = ("bars",)

_WIDTH, _BAR, _GAP, _LEFT, _RIGHT, _TOP = 860, 18, 8, 300, 90, 64
_SVG = "http://www.w3.org/2000/svg"
_COLOURS = {"tidegate": "#0f766e", "bare": "#94a3b8"}
_OTHERS = "#f59e0b"
_FONT = "font-family='ui-sans-serif,system-ui,Helvetica,Arial,sans-serif'"
_ONCE = {"exactly_once": "", "at_least_once": ", at least once"}


def bars(title: str, subtitle: str, lines: Sequence[Line]) -> str:
    """Events per second, fastest first. Wrong results have no bar."""
    shown = sorted((line for line in lines if line.good and line["rate"]), key=lambda line: -line["rate"])
    height = _TOP + len(shown) * (_BAR + _GAP) + 16
    longest = max((line["rate"] for line in shown), default=1.0)
    parts = [
        f"<svg xmlns='{_SVG}' viewBox='0 0 {_WIDTH} {height}' width='{_WIDTH}' height='{height}' role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{_WIDTH}' height='{height}' rx='8' fill='#ffffff'/>",
        f"<text x='20' y='30' {_FONT} font-size='17' font-weight='600' fill='#0f172a'>{escape(title)}</text>",
        f"<text x='20' y='50' {_FONT} font-size='12' fill='#475569'>{escape(subtitle)}</text>",
    ]
    for number, line in enumerate(shown):
        parts += _bar(line, _TOP + number * (_BAR + _GAP), longest)
    return "\n".join([*parts, "</svg>", ""])


def _bar(line: Line, top: int, longest: float) -> list[str]:
    width = max(round((_WIDTH - _LEFT - _RIGHT) * line["rate"] / longest), 1)
    colour = _COLOURS.get(line.row.name.partition("-")[0], _OTHERS)
    label = escape(line.row.title + _ONCE[line.row.guarantee])
    middle = top + _BAR - 5
    return [
        f"<text x='{_LEFT - 10}' y='{middle}' {_FONT} font-size='12' text-anchor='end' fill='#0f172a'>{label}</text>",
        f"<rect x='{_LEFT}' y='{top}' width='{width}' height='{_BAR}' rx='3' fill='{colour}'/>",
        f"<text x='{_LEFT + width + 8}' y='{middle}' {_FONT} font-size='12' fill='#334155'>{line['rate']:,.0f}</text>",
    ]

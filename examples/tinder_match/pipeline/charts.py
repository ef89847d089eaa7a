"""Charts as SVG, drawn by hand: a page with them needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, log10

__all__ = ("area", "bars")

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 30

Points = Sequence[tuple[str, float]]
"""Labels and values, in order."""


def bars(points: Points, *, unit: str, written: Callable[[float], str] = "{:,.0f}".format) -> str:
    """One bar for each point."""
    top = _top(points)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(points))
    drawn = []
    for index, (label, value) in enumerate(points):
        height = (HEIGHT - TOP - BOTTOM) * value / top
        x, y = LEFT + index * slot + slot * 0.12, HEIGHT - BOTTOM - height
        title = f"<title>{escape(label)}: {escape(written(value))} {escape(unit)}</title>"
        drawn.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{slot * 0.76:.1f}" height="{height:.1f}" rx="2">'
            f"{title}</rect>"
        )
    return _chart("".join(drawn), points, top, unit, written)


def area(points: Points, *, unit: str, written: Callable[[float], str] = "{:,.0f}".format) -> str:
    """A line with what is below it."""
    top = _top(points)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(points) - 1)
    floor = HEIGHT - BOTTOM
    line = [
        f"{LEFT + index * step:.1f},{floor - (floor - TOP) * value / top:.1f}"
        for index, (_, value) in enumerate(points)
    ]
    below = f"{LEFT:.1f},{floor} {' '.join(line)} {LEFT + (len(points) - 1) * step:.1f},{floor}"
    drawn = f'<polygon class="below" points="{below}"/><polyline class="line" points="{" ".join(line)}"/>'
    return _chart(drawn, points, top, unit, written)


def _chart(drawn: str, points: Points, top: float, unit: str, written: Callable[[float], str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(unit)}">'
        f"{_grid(top, written)}{drawn}{_labels(points)}</svg>"
    )


def _top(points: Points) -> float:
    """A round number at or above the highest value."""
    highest = max((value for _, value in points), default=0) or 1
    power = 10.0 ** ceil(log10(highest))
    return next(power * part for part in (0.1, 0.2, 0.4, 0.8, 1) if power * part >= highest)


def _grid(top: float, written: Callable[[float], str]) -> str:
    drawn = []
    for part in (0, 0.25, 0.5, 0.75, 1):
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{written(top * part)}</text>'
        )
    return "".join(drawn)


def _labels(points: Points) -> str:
    """As many as fit."""
    every = ceil(len(points) / 8) or 1
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(points))
    return "".join(
        f'<text class="tick" x="{LEFT + index * slot + slot / 2:.1f}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for index, (label, _) in enumerate(points)
        if index % every == 0
    )

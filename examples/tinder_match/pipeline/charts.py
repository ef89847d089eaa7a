"""Charts as SVG, generated directly, so that a page with them has no dependencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10

__all__ = ("area", "bars")

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 30

WIDEST = 64
"""The width of a bar."""
LABELS = 10
"""The number of labels that fit below a chart."""
SCALES = ((1, 5), (1.2, 4), (1.5, 5), (2, 4), (2.5, 5), (3, 3), (4, 4), (5, 5), (6, 3), (8, 4), (10, 5))
"""The ends of axes, times a power of ten, and their numbers of steps."""

Points = Sequence[tuple[str, float]]
"""Labels and values, in order; a point may have no label."""


def bars(points: Points, *, unit: str, written: Callable[[float], str] = "{:,.0f}".format) -> str:
    """One bar for each point."""
    top, _ = scale = _scale(points)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(points))
    width = min(slot * 0.76, WIDEST)
    drawn = []
    for index, (label, value) in enumerate(points):
        height = (HEIGHT - TOP - BOTTOM) * value / top
        x, y = LEFT + (index + 0.5) * slot - width / 2, HEIGHT - BOTTOM - height
        title = f"<title>{escape(label)}: {escape(written(value))} {escape(unit)}</title>"
        drawn.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2">{title}</rect>'
        )
    return _chart("".join(drawn), _labels(points, LEFT + slot / 2, slot), scale, unit, written)


def area(points: Points, *, unit: str, written: Callable[[float], str] = "{:,.0f}".format) -> str:
    """A line with what is below it."""
    top, _ = scale = _scale(points)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(points) - 1)
    floor = HEIGHT - BOTTOM
    line = [
        f"{LEFT + index * step:.1f},{floor - (floor - TOP) * value / top:.1f}"
        for index, (_, value) in enumerate(points)
    ]
    below = f"{LEFT:.1f},{floor} {' '.join(line)} {LEFT + (len(points) - 1) * step:.1f},{floor}"
    drawn = f'<polygon class="below" points="{below}"/><polyline class="line" points="{" ".join(line)}"/>'
    return _chart(drawn, _labels(points, LEFT, step), scale, unit, written)


def _chart(drawn: str, labels: str, scale: tuple[float, int], unit: str, written: Callable[[float], str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(unit)}">'
        f"{_grid(*scale, written)}{drawn}{labels}</svg>"
    )


def _scale(points: Points) -> tuple[float, int]:
    """A round number at or above the highest value, and how many steps lead to it, each a whole number."""
    highest = max([1.0, *(value for _, value in points)])
    power = 10.0 ** floor(log10(highest))
    return next(
        (top * power, steps)
        for top, steps in SCALES
        if top * power >= highest and (round(top * power, 6) / steps).is_integer()
    )


def _grid(top: float, steps: int, written: Callable[[float], str]) -> str:
    drawn = []
    for step in range(steps + 1):
        part = step / steps
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{written(top * part)}</text>'
        )
    return "".join(drawn)


def _labels(points: Points, first: float, step: float) -> str:
    """As many as fit; the first point's is at `first`."""
    named = [(index, label) for index, (label, _) in enumerate(points) if label]
    every = ceil(len(named) / LABELS) or 1
    return "".join(
        f'<text class="tick" x="{first + index * step:.1f}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for index, label in named[::every]
    )

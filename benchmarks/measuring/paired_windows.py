"""Two ways of running, compared within one run: windows of equal length take turns, and neighbours are compared.

A machine that others share is faster in one minute than in the next, by more than what is to be measured. Neighbours
have the same weather, and the order ABBA ABBA … A lets whatever grows or shrinks steadily fall on both alike.

What a window leaves behind for the next one is measured, too. Every second window follows one of the other kind, so
there are two series of pairs, and each window but the first and the last is in both:

- Neighbours of different kinds: B / A. Both kinds follow either kind equally often.
- Neighbours of one kind, of which one follows a B, and one an A: what a B costs its successor.

The product of both ratios is what B costs when it goes on and on, as far as that shows within two windows. A window in
which others were busy may be left out, and its partner with it. That is no choice between results: what others do does
not depend on the kind of the window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean, stdev

__all__ = ("Ratio", "after", "between", "order")


@dataclass(frozen=True, kw_only=True)
class Ratio:
    mean: float
    error: float
    """The standard error of the mean."""
    pairs: int
    """How many it is the mean of."""

    def __mul__(self, other: Ratio) -> Ratio:
        parts = self.error / self.mean, other.error / other.mean
        mean = self.mean * other.mean
        return Ratio(mean=mean, error=mean * math.hypot(*parts), pairs=min(self.pairs, other.pairs))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f}"


def order(pairs: int) -> Iterator[bool]:
    """Whether each window is a B: so many pairs of neighbours of different kinds, and one more at the end, so that
    there are as many pairs of one kind."""
    return islice(_turns(), 2 * pairs + 1)


def _turns() -> Iterator[bool]:
    while True:
        yield from (False, True, True, False)


def between(values: Sequence[float | None]) -> Ratio:
    """B / A, of the windows' values in this order; None: it does not count."""
    return _mean(values[:-1])


def after(values: Sequence[float | None]) -> Ratio:
    """A window after a B / one after an A. Whom a window follows is ABBA again, one window later."""
    return _mean(values[1:])


def _mean(values: Sequence[float | None]) -> Ratio:
    """Geometric: a ratio and its inverse cancel out."""
    pairs = enumerate(zip(values[::2], values[1::2], strict=True))
    logs = [math.log(second / first) * (-1) ** number for number, (first, second) in pairs if first and second]
    if len(logs) < 2:
        raise ValueError(f"{len(logs)} pairs of {len(values) // 2} count, and an error is known of two or more only")
    mean = math.exp(fmean(logs))
    return Ratio(mean=mean, error=mean * stdev(logs) / math.sqrt(len(logs)), pairs=len(logs))

"""Compares two variants within one run: windows of equal length alternate, and neighbours are compared.

The speed of a shared machine varies between minutes by more than the effect to be measured. Neighbouring windows have
similar conditions, and the order ABBA ABBA … A cancels linear trends.

The after-effect of a window on the next one is measured, too. Every second window follows one of the other kind, so
there are two series of pairs, and each window but the first and the last is in both:

- Neighbours of different kinds: B / A. Both kinds follow either kind equally often.
- Neighbours of one kind, of which one follows a B, and one an A: the cost of a B for its successor.

The product of both ratios is the cost of running B continuously, as far as it shows within two windows. A window in
which other processes were busy may be left out, with its partner. This does not bias the result, since other processes
are independent of the kind of the window.
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
    """The number of pairs."""

    def __mul__(self, other: Ratio) -> Ratio:
        parts = self.error / self.mean, other.error / other.mean
        mean = self.mean * other.mean
        return Ratio(mean=mean, error=mean * math.hypot(*parts), pairs=min(self.pairs, other.pairs))

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f}"


def order(pairs: int) -> Iterator[bool]:
    """Whether each window is a B: this many pairs of different kinds, and one more window at the end, so that there
    are as many pairs of one kind."""
    return islice(_turns(), 2 * pairs + 1)


def _turns() -> Iterator[bool]:
    while True:
        yield from (False, True, True, False)


def between(values: Sequence[float | None]) -> Ratio:
    """The mean of B / A over neighbouring windows; None: the window is left out."""
    return _mean(values[:-1])


def after(values: Sequence[float | None]) -> Ratio:
    """The mean of a window after a B / one after an A. The predecessors are in the order ABBA, too, one window
    later."""
    return _mean(values[1:])


def _mean(values: Sequence[float | None]) -> Ratio:
    """The geometric mean, in which a ratio and its inverse cancel."""
    pairs = enumerate(zip(values[::2], values[1::2], strict=True))
    logs = [math.log(second / first) * (-1) ** number for number, (first, second) in pairs if first and second]
    if len(logs) < 2:
        raise ValueError(f"{len(logs)} pairs of {len(values) // 2} count, and an error is known of two or more only")
    mean = math.exp(fmean(logs))
    return Ratio(mean=mean, error=mean * stdev(logs) / math.sqrt(len(logs)), pairs=len(logs))

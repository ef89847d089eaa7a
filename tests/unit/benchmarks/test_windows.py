"""Windows that take turns: neither drift nor what a window leaves behind is taken for the difference."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.measuring.paired_windows import Ratio, after, between, order

PAIRS = 6


def values(own: float = 1.0, left: float = 1.0, drift: float = 1.0, noise: float = 0.0) -> list[float]:
    """What windows would show if a B took `own` as much, and left `left` to the next one."""
    dice, kinds = random.Random(3), [*order(PAIRS)]
    return [
        1000 * (own if kind else 1) * (left if before else 1) * drift**number * math.exp(dice.gauss(0, noise))
        for number, (kind, before) in enumerate(zip(kinds, [False, *kinds], strict=False))
    ]


def test_both_kinds_take_turns() -> None:
    kinds = "".join("AB"[kind] for kind in order(PAIRS))
    assert kinds == "ABBAABBAABBAA"


def test_what_a_window_costs_is_told_from_what_it_leaves_behind() -> None:
    found = values(own=0.9, left=0.95)
    assert (between(found).mean, after(found).mean) == pytest.approx((0.9, 0.95))
    assert (between(found) * after(found)).mean == pytest.approx(0.855)
    assert between(found).error == pytest.approx(0, abs=1e-9)


def test_a_machine_that_gets_slower_steadily_makes_no_difference() -> None:
    found = values(drift=0.97)
    assert (between(found).mean, after(found).mean) == pytest.approx((1, 1))
    assert between(found).error > 0.005


def test_the_error_says_how_far_off_the_mean_may_be() -> None:
    found = between(values(own=0.9, noise=0.05))
    assert found.error == pytest.approx(0.05 * math.sqrt(2 / PAIRS), rel=0.5)
    assert abs(found.mean - 0.9) < 3 * found.error


def test_a_window_that_does_not_count_takes_its_partners_with_it() -> None:
    found: list[float | None] = [*values(own=0.9)]
    found[1] = None
    assert between(found).mean == pytest.approx(0.9)
    assert [between(found).pairs, after(found).pairs] == [PAIRS - 1, PAIRS - 1]


def test_errors_of_a_product_add_up_as_squares() -> None:
    assert str(Ratio(mean=1, error=0.03, pairs=5) * Ratio(mean=2, error=0.08, pairs=5)) == "2.000 ± 0.100"


def test_one_pair_has_no_error_that_is_known() -> None:
    with pytest.raises(ValueError, match="1 pairs of 2 count"):
        between([1.0, 2.0, 1.0, None, 1.0])

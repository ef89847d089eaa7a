"""Position tokens say what an answer was of, come back unchanged, and cannot be made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import PositionError
from tidegate.serving import Position, merge, parse_position

names = st.text(min_size=1, max_size=20)
offsets = st.integers(0, 1 << 60)
positions = st.builds(
    Position,
    run=names,
    tasks=st.dictionaries(names, st.tuples(names, offsets), max_size=4),
    topics=st.dictionaries(names, st.dictionaries(st.integers(0, 100), offsets, max_size=4), max_size=4),
)


@given(positions)
def test_a_token_round_trips(position: Position) -> None:
    assert parse_position(str(position)) == position
    assert str(position).isascii()
    assert not set(str(position)) & set("/+=&?#% ")


@pytest.mark.parametrize("token", ["", "x", "nonsense!", "AAAA", "k6ExgYA", "a" * 20_000, "\u2603"])
def test_an_invalid_token_is_refused(token: str) -> None:
    with pytest.raises(PositionError, match="unchanged"):
        parse_position(token)


def test_of_several_the_furthest_counts() -> None:
    one = Position("1", {"s.0": ("a", 5)}, {"t": {0: 3, 1: 9}})
    other = Position("1", {"s.0": ("a", 7), "s.1": ("b", 1)}, {"t": {0: 4}})
    assert merge("1", [one, other]) == Position("1", {"s.0": ("a", 7), "s.1": ("b", 1)}, {"t": {0: 4, 1: 9}})

"""The bytes of a map's keys: in the order of the keys, and told from those of the former layout."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Annotated, Any, NewType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import DecodeError, EncodeError
from tidegate.keys import encode_key
from tidegate.state.map_keys import LAYOUT, map_keys, plain_subkey

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
numbers = st.integers() | st.sampled_from(
    [0, -1, 1, 255, 256, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**40, -(10**40), 256**9, 256**9 - 1]
)
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text("\x00a\uffff\U0001f600", max_size=4)
raws = st.binary() | st.lists(st.sampled_from([0, 1, 0xFE, 0xFF]), max_size=5).map(bytes)
floats = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)
days = st.dates()

TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: numbers,
    str: texts,
    bytes: raws,
    float: floats,
    bool: st.booleans(),
    datetime: moments,
    date: days,
    tuple[str, int]: st.tuples(texts, numbers),
    tuple[bytes, str, bool]: st.tuples(raws, texts, st.booleans()),
    tuple[datetime, float, date]: st.tuples(moments, floats, days),
    tuple[int, ...]: st.lists(numbers, max_size=4).map(tuple),
    tuple[tuple[str, ...], int]: st.tuples(st.lists(texts, max_size=3).map(tuple), numbers),
    tuple[()]: st.just(()),
}


@pytest.mark.parametrize("key_type", TYPES, ids=str)
def test_the_order_of_the_bytes_is_the_order_of_the_keys_and_equal_keys_have_equal_bytes(key_type: Any) -> None:
    keys = map_keys(key_type)

    @given(TYPES[key_type], TYPES[key_type])
    def check(one: Any, other: Any) -> None:
        first, second = keys.encode(one), keys.encode(other)
        assert (first < second) == (one < other)
        assert (first == second) == (one == other)
        assert keys.decode(first) == one
        assert type(keys.decode(first)) is type(one)

    check()
    assert keys.ordered


@pytest.mark.parametrize("key_type", TYPES, ids=str)
def test_a_key_of_the_former_layout_is_known_by_its_first_byte(key_type: Any) -> None:
    keys = map_keys(key_type)

    @given(TYPES[key_type])
    def check(key: Any) -> None:
        former, now = encode_key(key), keys.encode(key)
        assert keys.stored(former) == now
        assert keys.stored(now) == now
        assert keys.plain(former) == former
        assert keys.stored(keys.plain(now)) == now
        if key_type is not bytes:
            assert plain_subkey(former) == former
            assert plain_subkey(now) == keys.plain(now)

    check()


def test_only_types_whose_bytes_were_not_in_order_have_another_layout() -> None:
    assert {key_type for key_type in (int, str, bytes, float, bool, datetime, date) if map_keys(key_type).layout} == {
        int,
        float,
        datetime,
    }
    assert map_keys(tuple[str, str]).layout == LAYOUT


def test_one_moment_is_one_key_whatever_its_offset_and_is_read_in_utc() -> None:
    keys = map_keys(datetime)
    berlin = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert keys.encode(berlin) == keys.encode(datetime(2024, 5, 1, 10, tzinfo=UTC))
    assert keys.decode(keys.encode(berlin)).tzinfo is UTC
    naive = datetime(2024, 5, 1, 12)
    assert keys.decode(keys.encode(naive)) == naive
    assert keys.encode(naive) < keys.encode(datetime(1, 1, 1, tzinfo=UTC))


UserId = NewType("UserId", int)


@pytest.mark.parametrize("key_type", [UserId, Annotated[int, msgspec.Meta(ge=0)], tuple[UserId, UserId]])
def test_what_only_checks_changes_nothing(key_type: Any) -> None:
    keys = map_keys(key_type)
    assert keys.ordered
    assert keys.layout == LAYOUT


Name = NewType("Name", str)
Raw = Annotated[bytes, msgspec.Meta(max_length=9)]


@pytest.mark.parametrize(("key_type", "key"), [(Name, "a"), (Raw, b"\x83" + bytes(8)), (Annotated[bool, ""], True)])
def test_what_only_checks_is_read_as_it_was_written(key_type: Any, key: Any) -> None:
    keys = map_keys(key_type)
    raw = keys.encode(key)
    assert keys.decode(raw) == key
    assert keys.stored(raw) == keys.plain(raw) == raw == encode_key(key)


class Place(msgspec.Struct, frozen=True):
    street: str
    number: int


@pytest.mark.parametrize("key_type", [Place, int | str, tuple[Place, int], tuple[int | None, int], Any])
def test_keys_of_other_types_stay_json(key_type: Any) -> None:
    keys = map_keys(key_type)
    assert not keys.ordered
    assert keys.layout == 0
    assert keys.encode(5) == b"5"


@pytest.mark.parametrize(
    ("key_type", "key"),
    [
        (float, float("inf")),
        (float, float("nan")),
        (float, 10**400),
        (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
        (datetime, datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))),
    ],
)
def test_an_unorderable_map_key_is_refused(key_type: Any, key: Any) -> None:
    with pytest.raises(EncodeError, match="cannot be a key"):
        map_keys(key_type).encode(key)


def test_zero_is_one_key() -> None:
    assert map_keys(float).encode(-0.0) == map_keys(float).encode(0.0) == map_keys(float).encode(0)


@pytest.mark.parametrize(
    "raw", ["a0", "a083", "a0b061", "84000000ff01", "81", "83", "83" + "00" * 9, "a07f00", "b06100"]
)
def test_bytes_that_are_no_key_are_refused(raw: str) -> None:
    with pytest.raises(DecodeError):
        map_keys(int).decode(bytes.fromhex(raw))

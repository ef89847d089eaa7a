"""Key bytes: what they are, how they come back, where they lie."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from tidegate.errors import DecodeError, EncodeError
from tidegate.keys import KEY_GROUPS, decode_key, encode_key, key_group, partition_of, task_of_group


class Place(msgspec.Struct, frozen=True):
    street: str
    number: int


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("ann|bob", b"ann|bob"),
        ("", b""),
        ("ü", "ü".encode()),
        (b"\x00\xff", b"\x00\xff"),
        (17, b"17"),
        (-3, b"-3"),
        (1.5, b"1.5"),
        (True, b"true"),
        (("a", 1), b'["a",1]'),
        (Place("main", 1), b'{"street":"main","number":1}'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
    ],
)
def test_a_key_round_trips_through_its_bytes(key: Any, raw: bytes) -> None:
    assert encode_key(key) == raw
    assert decode_key(raw, tuple[str, int] if isinstance(key, tuple) else type(key)) == key


def test_equal_keys_have_equal_bytes_whatever_their_order() -> None:
    assert encode_key({"b": 1, "a": 2}) == encode_key({"a": 2, "b": 1})


@pytest.mark.parametrize("key", [None, float("nan"), object()])
def test_an_invalid_key_is_refused(key: Any) -> None:
    with pytest.raises(EncodeError, match="cannot be a key"):
        encode_key(key)


@pytest.mark.parametrize(("raw", "key_type"), [(b"x", int), (b"\xff", str), (b"{}", Place)])
def test_bytes_of_another_type_are_a_decode_error(raw: bytes, key_type: Any) -> None:
    with pytest.raises(DecodeError, match="not of type"):
        decode_key(raw, key_type)


# From Kafka's own UtilsTest.testMurmur2.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), MURMUR2.items())
def test_a_key_lies_where_java_puts_it(key: bytes, hashed: int) -> None:
    assert partition_of(key, 7) == (hashed & 0x7FFFFFFF) % 7


def test_groups_are_divided_into_ranges_of_nearly_the_same_size() -> None:
    for tasks in (1, 3, 8, KEY_GROUPS):
        owners = [task_of_group(group, tasks) for group in range(KEY_GROUPS)]
        assert owners == sorted(owners)
        sizes = [owners.count(task) for task in range(tasks)]
        assert max(sizes) - min(sizes) <= 1


def test_every_key_has_a_group() -> None:
    assert {key_group(b"%d" % number) for number in range(5000)} == set(range(KEY_GROUPS))

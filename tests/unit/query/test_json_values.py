from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidegate.codecs import codec_for
from tidegate.errors import DecodeError, UsageError
from tidegate.query.json_values import StateValues, json_bytes, json_key, parse_key
from tidegate.query.pages import PageEntry
from tidegate.state.declaration import StateDeclaration


class Old(msgspec.Struct):
    name: str


class Grown(msgspec.Struct):
    name: str
    age: int = 7


def values(type_: Any, kind: Any = "value", **options: Any) -> StateValues:
    return StateValues(StateDeclaration(name="state", kind=kind, codec=codec_for(type_), **options))


def test_json_is_shown_as_json_and_other_bytes_as_base64() -> None:
    assert json_bytes(b'{"a": [1, null]}') == {"a": [1, None]}
    assert json_bytes(b"\xff\x00") == {"base64": "/wA="}
    assert json_bytes(None) is None


@pytest.mark.parametrize(
    ("raw", "key_type", "shown"),
    [
        (b"ann", str, "ann"),
        (b"7", int, 7),
        (b"7", str, "7"),
        (b'[1,"a"]', tuple[int, str], [1, "a"]),
        (b"raw", bytes, "raw"),
        (b"\xff", bytes, {"base64": "/w=="}),
        (b"\xff", str, {"base64": "/w=="}),
        (b"seven", int, "seven"),
        (None, str, None),
    ],
)
def test_keys_are_shown_by_their_type(raw: bytes | None, key_type: Any, shown: Any) -> None:
    assert json_key(raw, key_type) == shown


@pytest.mark.parametrize(
    ("text", "key_type", "raw"),
    [("ann", str, b"ann"), ("7", int, b"7"), ("7", str, b"7"), ('[1, "a"]', tuple[int, str], b'[1,"a"]')],
)
def test_keys_are_typed_in_by_their_type(text: str, key_type: Any, raw: bytes) -> None:
    assert parse_key(text, key_type) == raw


def test_a_key_of_another_type_is_refused() -> None:
    with pytest.raises(UsageError, match="keys are of type int"):
        parse_key("seven", int)


def test_a_value_is_read_by_its_type_with_fields_added_since() -> None:
    assert values(Grown).value(msgspec.json.encode(Old("ann"))) == {"name": "ann", "age": 7}


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(DecodeError):
        values(Grown).value(b"[1]")


def test_the_entries_of_a_map_become_an_object() -> None:
    entries = [PageEntry(b"k", b"1", b"10"), PageEntry(b"k", b"\xff", b"20")]

    assert values(int, "map", key_type=int).of(entries) == {"1": 10, "base64:/w==": 20}


def test_bytes_are_shown_by_their_content() -> None:
    assert values(bytes).value(b"\xff") == {"base64": "/w=="}

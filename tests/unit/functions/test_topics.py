"""What a topic takes as values: None is a tombstone, where tombstones are taken."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import msgspec
import pytest

from tidegate.codecs import allows_none, codec_for
from tidegate.errors import DecodeError, EncodeError, TombstoneError
from tidegate.functions.topics import TopicDefinition


class Customer(msgspec.Struct, frozen=True):
    id: int


def topic(type_: Any, **options: Any) -> TopicDefinition:
    return TopicDefinition(name="customers", codec=codec_for(type_), partitions=1, **options)


@pytest.mark.parametrize(
    "type_",
    [Any, None, type(None), Customer | None, Optional[int], Annotated[Customer | None, "x"], int | Annotated[None, 1]],  # noqa: UP045
)
def test_types_of_which_none_is_a_value(type_: Any) -> None:
    assert allows_none(type_)


@pytest.mark.parametrize("type_", [Customer, int | str, list[None], dict[str, int | None], Annotated[int, None], bytes])
def test_types_of_which_none_is_no_value(type_: Any) -> None:
    assert not allows_none(type_)


@pytest.mark.parametrize(
    "definition", [topic(Customer, compact=True), topic(Customer | None), topic(bytes, compact=True), topic(Any)]
)
def test_none_is_written_without_a_value_where_tombstones_are_taken(definition: TopicDefinition) -> None:
    assert definition.encode(None) is None
    assert definition.decode(None) is None


@pytest.mark.parametrize("type_", [Customer, int, bytes])
def test_none_is_refused_elsewhere_with_what_to_declare(type_: Any) -> None:
    with pytest.raises(TombstoneError, match=r"'customers' takes none.*compact=True or value_type=X \| None"):
        topic(type_).encode(None)


def test_values_are_written_and_read_by_the_type() -> None:
    definition = topic(Customer, compact=True)
    assert definition.encode(Customer(1)) == b'{"id":1}'
    assert definition.decode(b'{"id":1}') == Customer(1)
    with pytest.raises(EncodeError):
        definition.encode("x")
    with pytest.raises(DecodeError):
        definition.decode(b"")


def test_json_null_is_read_as_none_and_empty_bytes_are_not() -> None:
    """Both are values, which a reader of the topic can tell from a tombstone."""
    assert topic(Customer | None).decode(b"null") is None
    assert topic(bytes, compact=True).decode(b"") == b""
    with pytest.raises(DecodeError):
        topic(Customer | None).decode(b"")


def test_a_tombstone_has_no_value_to_take_its_key_from() -> None:
    with pytest.raises(EncodeError, match=r"pass key=.*ctx\.delete"):
        topic(Customer, compact=True, key=lambda customer: customer.id).key_of(None)
    assert topic(Customer, compact=True).key_of(None) is None

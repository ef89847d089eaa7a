"""Keys have the type that is declared for them, else that of the field that they are taken from, else they are text."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import faust
import msgspec
import pytest
from pydantic import BaseModel

from tidegate import App, Context, Default, ValueState
from tidegate.errors import DefinitionError
from tidegate.functions.declaration.key_types import field_key_type
from tidegate.keys import decode_key, encode_key
from tidegate.logs.base import LogRecord
from tidegate.testing import AppHarness

OrderId = NewType("OrderId", int)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Lost(msgspec.Struct):
    number: int
    lost: Nowhere  # type: ignore[name-defined]  # noqa: F821


class Fine(msgspec.Struct):
    text: str
    number: int
    raw: bytes
    named: OrderId
    colour: Colour
    level: Level
    uuid: UUID
    day: date
    flag: bool
    some: int | None
    marked: Annotated[int, msgspec.Meta(ge=0)]
    one_of: Literal["a", "b"]
    either: int | str
    mixed: Literal["a", 1]
    items: list[int]
    anything: Any

    @property
    def both(self) -> int:
        return self.number + 1


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("text", str),
        ("number", int),
        ("raw", bytes),
        ("named", int),
        ("colour", Colour),
        ("level", Level),
        ("uuid", UUID),
        ("day", date),
        ("flag", bool),
        ("some", int),
        ("marked", int),
        ("one_of", str),
        ("both", int),
        ("either", None),
        ("mixed", None),
        ("items", None),
        ("anything", None),
        ("missing", None),
    ],
)
def test_a_fields_type_is_that_of_the_key_where_there_is_one(field: str, kind: Any) -> None:
    assert field_key_type(Fine, field) is kind


@pytest.mark.parametrize(
    "key",
    ["x", 7, b"x", Colour.RED, Level.LOW, UUID(int=5), date(2026, 1, 2), True],
    ids=lambda key: type(key).__name__,
)
def test_a_key_of_such_a_type_is_read_back_as_what_it_was(key: Any) -> None:
    holder = msgspec.defstruct("Holder", [("key", type(key))])
    assert decode_key(encode_key(key), field_key_type(holder, "key")) == key


def test_an_unresolvable_annotation_is_ignored() -> None:
    assert field_key_type(Lost, "number") is None


@dataclass
class Data:
    id: int


class Typed(TypedDict):
    id: int


class Tuple(NamedTuple):
    id: int


class Model(BaseModel):
    id: int


class Record(faust.Record):
    id: int


class Other(msgspec.Struct, tag=True):
    id: str


class Same(msgspec.Struct, tag=True):
    id: int


@pytest.mark.parametrize(
    ("value_type", "kind"),
    [
        (Data, int),
        (Typed, int),
        (Tuple, int),
        (Model, int),
        (Record, int),
        (Same | None, int),
        (Same | Data, int),
        (Same | Other, None),
        (dict[str, int], None),
        (Any, None),
        (int, None),
    ],
)
def test_values_of_all_kinds_expose_their_field_types(value_type: Any, kind: Any) -> None:
    assert field_key_type(value_type, "id") is kind


def test_a_topic_takes_the_type_of_its_keys_from_the_field() -> None:
    app = App("app")
    assert app.topic("field", value_type=Data, key="id").definition.key_type is int
    assert app.topic("declared", value_type=Data, key="id", key_type=str).definition.key_type is str
    assert app.topic("function", value_type=Data, key=lambda data: data.id).definition.key_type is str
    assert app.topic("untyped", key="id").definition.key_type is str


def service_key(app: App, *topics: Any, **options: Any) -> Any:
    async def handler(ctx: Context, event: Any) -> None: ...

    return app.process(*topics, name=f"service-{len(app.services)}", **options)(handler).definition.key_type


def test_a_service_has_the_keys_of_its_topics_or_of_its_own_choice() -> None:
    app = App("app")
    numbers = app.topic("numbers", value_type=Data, key="id")
    more = app.topic("more", value_type=Model, key="id")
    unsaid = app.topic("unsaid", value_type=Other)
    texts = app.topic("texts", value_type=Other, key="id")
    declared = app.topic("declared", value_type=Fine, key_type=bytes)
    assert service_key(app, numbers) is int
    assert service_key(app, numbers, more) is int
    assert service_key(app, unsaid) is str
    assert service_key(app, declared) is bytes
    assert service_key(app, numbers, key_type=str) is str
    assert service_key(app, texts, key_by="id") is str
    assert service_key(app, declared, key_by="number") is int
    assert service_key(app, numbers, declared, key_by={numbers: "id", declared: "number"}) is int
    assert service_key(app, numbers, key_by=lambda data: f"{data.id}") is str
    assert service_key(app, declared, key_by=lambda fine: fine.raw) is bytes
    with pytest.raises(DefinitionError, match=r"'numbers' of int, 'texts' of str\): declare one with key_type="):
        service_key(app, numbers, texts)


def test_the_key_is_what_the_field_is_and_its_bytes_are_as_before() -> None:
    app = App("app")
    orders = app.topic("orders", value_type=Data, key="id")
    sums = app.topic("sums", value_type=int)

    @app.process(orders, to=sums)
    async def count(ctx: Context[int], order: Data, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.value += ctx.key
        ctx.emit(seen.value, to=sums)

    with AppHarness(app) as harness:
        harness.send(orders, Data(7))
        harness.send_raw(orders, key=b"7", value=b'{"id":7}')
        assert harness.outputs(sums) == [7, 14]
        assert harness.state(count, "seen", 7) == 14
        assert [record.key for record in harness.records(orders)] == [7, 7]
        raw: list[tuple[int, LogRecord]] = harness._read("orders")
        assert [record.key for _, record in raw] == [b"7", b"7"]

"""Event types as Spark types: what stands on the log as JSON decides."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import faust
import msgspec
import pytest
from pydantic import BaseModel, Field

from tidegate_spark.types.event_schema import event_schema, spark_type


class Colour(enum.Enum):
    RED = "red"


class Inner(msgspec.Struct):
    x: int


class Everything(msgspec.Struct, rename="camel"):
    a_long: int
    a_text: str
    a_double: float
    a_flag: bool
    when: datetime
    day: date
    span: timedelta
    money: Decimal
    raw: bytes
    who: UUID
    colour: Colour
    kind: Literal["one", "two"]
    inner: Inner
    maybe: Inner | None
    several: list[Inner]
    names: dict[str, int]
    numbers: dict[int, float]
    mixed: int | str
    anything: Any
    pair: tuple[int, int]
    odd: tuple[int, str]


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)
    label: str = "here"


class Model(BaseModel):
    name: str
    size: int = Field(alias="Size")
    price: Decimal
    note: str | None = None
    inner: dict[str, list[int]] = {}


class Typed(TypedDict):
    a: int
    b: str


class Pair(NamedTuple):
    left: int
    right: int


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Old(faust.Record):
    id: int
    note: str = ""


class Tree(msgspec.Struct):
    name: str
    below: list[Tree] = []


def test_a_struct_of_everything() -> None:
    assert spark_type(Everything).simpleString().replace(",", ", ") == (
        "struct<aLong:bigint, aText:string, aDouble:double, aFlag:boolean, when:timestamp, day:date, span:string, "
        "money:decimal(38, 18), raw:binary, who:string, colour:string, kind:string, inner:struct<x:bigint>, "
        "maybe:struct<x:bigint>, several:array<struct<x:bigint>>, names:map<string, bigint>, "
        "numbers:map<string, double>, mixed:string, anything:string, pair:array<bigint>, odd:string>"
    )


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (Point, "struct<x:bigint,tags:array<string>,label:string>"),
        (Model, "struct<name:string,Size:bigint,price:decimal(38,18),note:string,inner:map<string,array<bigint>>>"),
        (Typed, "struct<a:bigint,b:string>"),
        (Pair, "array<bigint>"),
        (Cat | Dog, "struct<type:string,lives:bigint,name:string>"),
        (Old, "struct<id:bigint,note:string>"),
        (dict, "string"),
        (dict[str, int], "map<string,bigint>"),
        (list[int], "array<bigint>"),
        (str, "string"),
        (int, "bigint"),
        (int | None, "bigint"),
        (int | float, "double"),
        (bytes, "binary"),
        (Any, "string"),
    ],
    ids=str,
)
def test_all_kinds_of_event_types(type_: Any, expected: str) -> None:
    assert spark_type(type_).simpleString() == expected


def test_a_type_that_holds_itself_ends_as_text() -> None:
    assert spark_type(Tree).simpleString() == "struct<name:string,below:array<string>>"


def test_what_must_be_there_and_what_is_filled_in() -> None:
    point = event_schema(Point)
    assert point.required == (("x",),)
    assert dict(point.defaults) == {"tags": [], "label": "here"}

    model = event_schema(Model)
    assert {path[0] for path in model.required} == {"name", "Size", "price"}


def test_text_is_text_and_json_is_json() -> None:
    assert event_schema(str).plain_text
    assert not event_schema(dict).plain_text
    assert not event_schema(Any).plain_text

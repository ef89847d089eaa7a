from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import faust
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.codecs import codec_for, decode_error, encode_error
from tidegate.errors import DecodeError, DefinitionError, EncodeError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Like(msgspec.Struct):
    liker: str
    at: float
    note: str | None = None


class Superlike(Like):
    stars: int = 5


class Pair(msgspec.Struct, frozen=True):
    first: str
    at: int
    next: Pair | None = None


class Holder(msgspec.Struct, frozen=True):
    items: list[int]


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FrozenPoint:
    x: int
    y: tuple[int, ...] = ()


@attrs.define
class Box:
    size: int


@attrs.frozen
class FrozenBox:
    size: int


class Place(TypedDict):
    name: str
    height: int


class Move(NamedTuple):
    piece: str
    steps: int


class Person(pydantic.BaseModel):
    name: str
    age: int
    weight: float = 1.0
    born: date | None = None


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["aliased"] = "aliased"
    inner: int = pydantic.Field(alias="in")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.inner * 2


@dataclass
class Team:
    lead: Person
    members: list[Person]


class Click(faust.Record):
    page: str
    count: int = 0


class Picky(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        assert self.n != 13, "unlucky"


class Stranger:
    pass


text = st.text(st.characters(codec="utf-8"), max_size=10)
floats = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(timezones=st.just(UTC))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
likes = st.builds(Like, liker=text, at=floats, note=st.none() | text)
pairs = st.recursive(
    st.builds(Pair, first=text, at=st.integers(), next=st.none()),
    lambda inner: st.builds(Pair, first=text, at=st.integers(), next=inner),
    max_leaves=3,
)
people = st.builds(Person, name=text, age=st.integers(0, 150), weight=floats, born=st.none() | st.dates())
clicks = st.builds(Click, page=text, count=st.integers(0, 9))

KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (int, st.integers()),
    "float": (float, floats),
    "bool": (bool, st.booleans()),
    "none": (type(None), st.none()),
    "str": (str, text),
    "bytes": (bytes, st.binary()),
    "decimal": (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    "datetime": (datetime, moments),
    "timedelta": (timedelta, st.timedeltas(timedelta(days=-999), timedelta(days=999))),
    "uuid": (UUID, st.uuids()),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "literal": (Literal["a", "b"], st.sampled_from(["a", "b"])),
    "any": (Any, json_values),
    "dict": (dict, st.dictionaries(text, json_values, max_size=3)),
    "dict of any": (dict[str, Any], st.dictionaries(text, json_values, max_size=3)),
    "list of int": (list[int], st.lists(st.integers())),
    "set": (set[str], st.sets(text)),
    "frozenset": (frozenset[int], st.frozensets(st.integers())),
    "tuple": (tuple[int, str], st.tuples(st.integers(), text)),
    "long tuple": (tuple[int, ...], st.lists(st.integers()).map(tuple)),
    "int keys": (dict[int, str], st.dictionaries(st.integers(), text, max_size=3)),
    "uuid keys": (dict[UUID, int], st.dictionaries(st.uuids(), st.integers(), max_size=3)),
    "optional": (int | None, st.none() | st.integers()),
    "nested bytes": (list[bytes], st.lists(st.binary())),
    "struct": (Like, likes),
    "recursive struct": (Pair, pairs),
    "structs in a dict": (dict[str, Like], st.dictionaries(text, likes, max_size=3)),
    "optional struct": (Like | None, st.none() | likes),
    "annotated": (Annotated[int, msgspec.Meta(ge=0)], st.integers(0)),
    "dataclass": (Point, st.builds(Point, x=st.integers(), tags=st.lists(text, max_size=3))),
    "attrs": (Box, st.builds(Box, size=st.integers())),
    "typed dict": (Place, st.fixed_dictionaries({"name": text, "height": st.integers()})),
    "named tuple": (Move, st.builds(Move, text, st.integers())),
    "pydantic": (Person, people),
    "pydantic aliases": (Aliased, st.integers().map(lambda n: Aliased.model_validate({"in": n}))),
    "pydantic in a list": (list[Person], st.lists(people, max_size=3)),
    "pydantic in a dict": (dict[str, Person | None], st.dictionaries(text, st.none() | people, max_size=3)),
    "pydantic in a dataclass": (Team, st.builds(Team, lead=people, members=st.lists(people, max_size=2))),
    "pydantic union": (Person | Aliased, people | st.integers().map(lambda n: Aliased.model_validate({"in": n}))),
    "faust": (Click, clicks),
    "faust in a list": (list[Click], st.lists(clicks, max_size=3)),
    "faust in a dict": (dict[str, Click], st.dictionaries(text, clicks, max_size=3)),
    "optional faust": (Click | None, st.none() | clicks),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_values_round_trip(kind: str, data: st.DataObject) -> None:
    type_, strategy = KINDS[kind]
    value = data.draw(strategy)
    codec = codec_for(type_)

    raw = codec.encode(value)
    back = codec.decode(raw)

    assert back == value
    assert type(back) is type(value) or type_ is float
    assert codec.check(value)
    assert codec.encode_raw(value) == raw
    assert codec.decode_raw(raw) == value


@given(st.binary(max_size=40))
def test_arbitrary_bytes_raise_only_decode_errors(raw: bytes) -> None:
    for type_ in (Like, Person, Click, Any, dict[int, list[float]], datetime):
        codec = codec_for(type_)
        try:
            value = codec.decode(raw)
        except DecodeError:
            continue
        assert codec.check(value)


def test_bytes_are_not_wrapped_in_json() -> None:
    assert codec_for(bytes).encode(b"\xff\x00") == b"\xff\x00"


def test_a_codec_is_made_once_per_type() -> None:
    assert codec_for(list[Like]) is codec_for(list[Like])
    assert codec_for(Annotated[int, ["unhashable"]]).decode(b"5") == 5


def test_a_missing_annotation_means_anything() -> None:
    assert codec_for(None).type is Any


@pytest.mark.parametrize(
    ("type_", "immutable"),
    [
        (int, True),
        (bytes, True),
        (Decimal, True),
        (datetime, True),
        (UUID, True),
        (Colour, True),
        (Literal["a"], True),
        (type(None), True),
        (int | None, True),
        (tuple[int, ...], True),
        (tuple[str, frozenset[int]], True),
        (Move, True),
        (Pair, True),
        (Pair | None, True),
        (FrozenPoint, True),
        (FrozenBox, True),
        (tuple[Pair, ...], True),
        (Any, False),
        (dict, False),
        (list[int], False),
        (set[int], False),
        (bytearray, False),
        (Like, False),
        (Holder, False),
        (Point, False),
        (Box, False),
        (Place, False),
        (Person, False),
        (Click, False),
        (tuple[list[int], int], False),
        (tuple[Click, ...], False),
        (int | list[int], False),
        (frozenset[Holder], False),
    ],
)
def test_immutable_means_deeply_so(type_: Any, immutable: bool) -> None:
    assert codec_for(type_).immutable is immutable


@pytest.mark.parametrize(
    ("type_", "raw", "expected"),
    [
        (Like, b'{"liker":"a","at":"x"}', r"not a valid Like: Expected `float`, got `str` - at `\$\.at`"),
        (Like, b'{"liker":"a"}', "missing required field `at`"),
        (Like, b"", "truncated"),
        (Like, b"{", "truncated"),
        (Like, b'{"liker":"a","at":1}x', "trailing"),
        (list[int], b'[1,"a"]', r"not a valid list\[int\]: .* at `\$\[1\]`"),
        (int, b"1.0", "Expected `int`, got `float`"),
        (int, b"true", "Expected `int`, got `bool`"),
        (float, b"NaN", "malformed"),
        (float, b"1e999", "out of range"),
        (str, b'"\xff"', "invalid start byte"),
        (dict, b"[]", "Expected `object`, got `array`"),
        (Any, b"[" * 100_000, "nested too deeply"),
        (Colour, b'"green"', "Invalid enum value"),
        (Picky, b'{"n":13}', "unlucky"),
        (Person, b'{"name":"x","age":"y"}', r"not a valid Person: .*integer.* at `\$\.age`"),
        (list[Person], b'[{"name":"x","age":1},{"age":1}]', r"required - at `\$\.1\.name`"),
        (Person, b'{"name":"x","age":1,"weight":NaN}', r"no nan - at `\$\.weight`"),
        (Person, b"[", "Invalid JSON"),
        (Click, b"[]", "Expected `object`, got `list`"),
        (Click, b"{}", "missing 1 required positional argument: 'page'"),
    ],
)
def test_a_decode_error_names_the_expected_type_and_the_path(type_: Any, raw: bytes, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        codec_for(type_).decode(raw)


def test_a_decode_error_does_not_show_the_data() -> None:
    with pytest.raises(DecodeError) as caught:
        codec_for(Person).decode(b'{"name":"x","age":"secret"}')

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (Like, 5, "expected a value of type Like, got one of type int"),
        (Like, Superlike("a", 1.0), "expected a value of type Like, got one of type Superlike"),
        (Like | None, Pair("a", 1), "got one of type Pair"),
        (int, True, "got one of type bool"),
        (int, "1", "got one of type str"),
        (bytes, "text", "got one of type str"),
        (str, "\ud800", "surrogates"),
        (float, math.nan, r"JSON has no nan - at `\$`"),
        (Like, Like("a", math.inf), r"JSON has no inf - at `\$\.at`"),
        (Any, {"a": [None, -math.inf]}, r"JSON has no -inf - at `\$\.a\[1\]`"),
        (Person, Person(name="x", age=1, weight=math.nan), r"JSON has no nan - at `\$\.weight`"),
        (Person, Person.model_construct(name="x", age="y"), "Expected `int`"),
        (Click, Click("x", math.nan), r"JSON has no nan - at `\$\.count`"),
        (Click, Click("x", Stranger()), "Stranger cannot be read back"),
        (dict, {1: 2}, "key must be str"),
        (dict, {"at": datetime(2024, 1, 1, tzinfo=UTC)}, "not JSON serializable: datetime"),
        (Any, Like("a", 1.0), "not JSON serializable: .*Like. A value without a declared type"),
        (Any, Stranger(), "not JSON serializable: .*Stranger"),
        (Any, 2**64, "64-bit"),
        (list[Like], [Stranger()], "Stranger is unsupported"),
    ],
)
def test_a_value_that_does_not_round_trip_is_refused(type_: Any, value: Any, expected: str) -> None:
    with pytest.raises(EncodeError, match=expected):
        codec_for(type_).encode(value)


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (Stranger, "Stranger cannot be read back from JSON"),
        (list[Stranger], "Stranger cannot be read back from JSON"),
        (Stranger | int, "custom type"),
        (Callable[[int], int], "cannot be read back"),
        ("a string", "not supported"),
        (dict[tuple[int, int], int], "keys of a dict must be text or numbers"),
        (msgspec.defstruct("Mixed", [("person", Person)]), "pydantic model Person can be a part of dataclasses"),
        (dict[str, Person | Stranger], "Stranger"),
    ],
)
def test_an_unsupported_type_is_refused_with_the_supported_ones(type_: Any, reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason) as caught:
        codec_for(type_)

    assert "Supported: msgspec.Struct, dataclasses" in str(caught.value)


def test_a_hot_loop_can_translate_failures_itself() -> None:
    codec = codec_for(Like)

    with pytest.raises(codec.decode_failures) as caught:
        codec.decode_raw(b"{")
    assert (
        str(decode_error(codec, b"{", caught.value)) == "1 byte(s) that are not a valid Like: Input data was truncated"
    )
    assert "got one of type int" in str(encode_error(codec, 5))


def test_decoding_a_msgspec_type_costs_no_python_frame() -> None:
    assert codec_for(Like).decode_raw.__self__.__class__ is msgspec.json.Decoder  # type: ignore[attr-defined]


def test_a_record_cannot_choose_the_class_it_is_decoded_to() -> None:
    raw = b'{"page":"x","__faust":{"ns":"%s"}}' % Other._options.namespace.encode()

    assert type(codec_for(Click).decode(raw)) is Click


class Other(faust.Record):
    page: str


def test_neither_pydantic_nor_faust_is_imported_for_other_types() -> None:
    program = """
import sys
import msgspec
from tidegate.codecs import codec_for

class Like(msgspec.Struct):
    liker: str

codec = codec_for(dict[str, list[Like] | None])
codec.decode(codec.encode({"a": [Like("b")]}))
print(sorted({"pydantic", "faust"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"

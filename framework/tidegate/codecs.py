"""Typed codecs: serialization of event and state values.

The wire format is JSON, so that any consumer can read it; only a top-level `bytes` value is stored as it is. msgspec
handles the types that it supports. pydantic models use their own adapter, and `faust.Record` its own methods; both are
recognised without importing their libraries. Nothing is pickled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from inspect import Parameter, isabstract
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, get_args, get_origin, is_typeddict

import msgspec
import orjson
from msgspec import inspect

from tidegate.errors import DecodeError, DefinitionError, EncodeError
from tidegate.type_info import UNFIT_KEYS, classes_in, is_fixed, is_schemaless, nodes_of

__all__ = (
    "FAILURES",
    "Codec",
    "allows_none",
    "codec_for",
    "decode_error",
    "encode_error",
    "may_have_field",
    "type_name",
    "types_overlap",
)

T = TypeVar("T")

FAILURES: Final = (
    msgspec.MsgspecError,
    ValueError,  # bytes that are not UTF-8, and the validation errors of pydantic and Faust
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    RecursionError,
)
"""The exceptions that the libraries raise, and those that a `__post_init__` or a validator may raise on bad data."""

SUPPORTED: Final = (
    "msgspec.Struct, dataclasses, attrs classes, TypedDict, NamedTuple, pydantic models, faust.Record, bool, int, "
    "float, str, bytes, None, Decimal, datetime, date, time, timedelta, UUID, Enum, Literal, Any, and list, tuple, "
    "set, frozenset, dict and unions of these"
)


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Encodes and decodes one type. The attributes are plain callables, so that a call costs no method lookup."""

    type: Any
    encode: Callable[[T], bytes]
    """Checks the value's type first. Raises EncodeError."""
    decode: Callable[[bytes], T]
    """Raises DecodeError, which names the expected type and the path of the error."""
    check: Callable[[Any], bool]
    """Whether a value is of the declared class. Cheap: it checks the outermost value only."""
    immutable: bool
    """Whether values are deeply immutable, so that they need not be compared to detect changes."""
    encode_raw: Callable[[T], bytes]
    """For hot loops: does not check the type. Raises any of `encode_failures`; see `encode_error`."""
    decode_raw: Callable[[bytes], T]
    """For hot loops: for most types a plain C function. Raises any of `decode_failures`; see `decode_error`."""
    exact: type | None = None
    """Values of exactly this class pass `check`: comparing the class first saves the call."""
    encode_failures: tuple[type[Exception], ...] = FAILURES
    decode_failures: tuple[type[Exception], ...] = FAILURES


def codec_for(type_: Any) -> Codec[Any]:
    """The codec of a type, cached. A missing annotation means Any."""
    try:
        hash(type_)
    except TypeError:  # an Annotated type with an unhashable argument
        return _build(type_)
    return _cached(type_)


def decode_error(codec: Codec[Any], raw: bytes, failure: BaseException) -> DecodeError:
    """The error that `codec.decode` raises for a failure of `codec.decode_raw`."""
    return DecodeError(f"{len(raw)} byte(s) that are not a valid {type_name(codec.type)}: {_detail(failure)}")


def encode_error(codec: Codec[Any], value: Any, failure: BaseException | None = None) -> EncodeError:
    """The error that `codec.encode` raises if `codec.encode_raw` fails, or if `codec.check` rejects the value."""
    if failure is None:
        return EncodeError(
            f"expected a value of type {type_name(codec.type)}, got one of type {type_name(type(value))}"
        )
    return EncodeError(f"a value that cannot be written as {type_name(codec.type)}: {_detail(failure)}")


@dataclass(frozen=True, slots=True)
class _Raw:
    """A library's encoder and decoder for a type, without checks, and whether its values are immutable."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    immutable: bool = False


def _build(type_: Any) -> Codec[Any]:
    if type_ is None or type_ is Parameter.empty:
        type_ = Any
    if type_ is bytes:
        raw = _Raw(_write_bytes, bytes, immutable=True)
    elif any(map(_is_pydantic, classes_in(type_))):
        raw = _pydantic(type_)
    else:
        raw = _msgspec(type_)
    return _finish(type_, raw)


_cached = cache(_build)


def _finish(type_: Any, raw: _Raw) -> Codec[Any]:
    check = _checker(type_)
    raw_encode, raw_decode = raw.encode, raw.decode

    def encode(value: Any) -> bytes:
        if not check(value):
            raise encode_error(codec, value)
        try:
            return raw_encode(value)
        except FAILURES as failure:
            raise encode_error(codec, value, failure) from failure

    def decode(data: bytes) -> Any:
        try:
            return raw_decode(data)
        except FAILURES as failure:
            raise decode_error(codec, data, failure) from failure

    codec: Codec[Any] = Codec(type_, encode, decode, check, raw.immutable, raw_encode, raw_decode, _exact(type_))
    return codec


def _write_bytes(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return value


# ---------------------------------------------------------------------------------------------------------- msgspec


def _msgspec(type_: Any) -> _Raw:
    try:
        nodes = nodes_of(type_)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise _unsupported(type_, str(error)) from error
    custom = [node.cls for node in nodes if isinstance(node, inspect.CustomType)]
    _refuse_unreadable(type_, nodes, custom)
    try:
        decode = msgspec.json.Decoder(type_, dec_hook=_read_record if custom else None).decode
    except (TypeError, ValueError) as error:
        raise _unsupported(type_, str(error)) from error
    hook = _write_record if custom else None
    encode = _write_json if is_schemaless(nodes) else msgspec.json.Encoder(enc_hook=hook).encode
    if custom or any(isinstance(node, inspect.FloatType | inspect.AnyType) for node in nodes):
        encode = _finite(encode, decode, partial(msgspec.to_builtins, enc_hook=hook))
    return _Raw(encode, decode, immutable=all(map(is_fixed, nodes)))


def _refuse_unreadable(type_: Any, nodes: Iterable[inspect.Type], custom: Iterable[type]) -> None:
    for cls in custom:
        if _is_pydantic(cls):
            raise _unsupported(
                type_, f"the pydantic model {type_name(cls)} can be a part of dataclasses and generics only"
            )
        if not _is_record(cls):
            raise _unsupported(type_, f"{type_name(cls)} cannot be read back from JSON")
    for node in nodes:
        if isinstance(node, inspect.DictType) and isinstance(node.key_type, UNFIT_KEYS):
            raise _unsupported(type_, "the keys of a dict must be text or numbers in JSON")


_JSON_ONLY: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def _write_json(value: Any) -> bytes:
    """JSON's own types only: without a declared type, a date or an int key would be decoded as a str."""
    try:
        return orjson.dumps(value, None, _JSON_ONLY)
    except TypeError as error:
        raise TypeError(f"{error}. A value without a declared type may only contain JSON types: declare one") from error


def _finite(
    write: Callable[[Any], bytes], read: Callable[[bytes], Any], plain: Callable[[Any], Any]
) -> Callable[[Any], bytes]:
    """Reject NaN and infinity: JSON has neither, and the libraries write null for them.

    Only output that contains a null is checked. Decoding and comparing it is the quick check, since a NaN equals
    nothing; only a value that differs is traversed.
    """

    def encode(value: Any) -> bytes:
        raw = write(value)
        if b"null" in raw and not _reads_back(read, raw, value):
            _refuse_non_finite(plain(value), "$")
        return raw

    return encode


def _reads_back(read: Callable[[bytes], Any], raw: bytes, value: Any) -> bool:
    try:
        return bool(read(raw) == value)
    except FAILURES:
        return False


def _refuse_non_finite(value: Any, path: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no {value} - at `{path}`")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{path}.{key}")
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")


# ------------------------------------------------------------------------------------------------------------ Faust


def _is_record(cls: Any) -> bool:
    return _descends(cls, "faust.models.record", "Record")


def _read_record(cls: Any, data: Any) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"Expected `object`, got `{type(data).__name__}`")
    return cls.from_data(data, preferred_type=cls)  # otherwise Faust uses the class that the data names


def _write_record(value: Any) -> Any:
    if not _is_record(type(value)):
        raise TypeError(f"{type_name(type(value))} cannot be read back from JSON")
    return value.to_representation()


# --------------------------------------------------------------------------------------------------------- pydantic


def _is_pydantic(cls: Any) -> bool:
    return _descends(cls, "pydantic.main", "BaseModel") or hasattr(cls, "__pydantic_validator__")


def _pydantic(type_: Any) -> _Raw:
    """The model's own configuration decides how strict it is. With round_trip, it can read what it writes."""
    from pydantic import PydanticUserError, TypeAdapter

    try:
        adapter = TypeAdapter(type_)
    except (PydanticUserError, TypeError, NameError) as error:
        raise _unsupported(type_, str(error).partition("\n")[0]) from error
    write = partial(adapter.dump_json, by_alias=True, round_trip=True, warnings="error")

    def decode(raw: bytes) -> Any:
        value = adapter.validate_json(raw)
        if b"NaN" in raw or b"Infinity" in raw:
            _refuse_non_finite(adapter.dump_python(value), "$")
        return value

    return _Raw(_finite(write, adapter.validate_json, adapter.dump_python), decode)


# ----------------------------------------------------------------------------------------------- checks and messages

_PLAIN_MODULES: Final = frozenset({"builtins", "datetime", "decimal", "uuid"})


def _checker(type_: Any) -> Callable[[Any], bool]:
    classes = _classes(type_)
    if classes is None:
        return _is_anything
    plain = tuple(cls for cls in classes if cls.__module__ in _PLAIN_MODULES)
    models = frozenset(classes).difference(plain)
    return partial(_is_one_of, models, plain) if plain else partial(_is_model, models)


def _classes(type_: Any) -> list[type] | None:
    """The possible classes of values of this type; None if they cannot be enumerated."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return _classes(arguments[0])
    if origin is Union or origin is UnionType:
        parts = [_classes(argument) for argument in arguments]
        return None if None in parts else [cls for part in parts for cls in part or ()]
    cls = origin or type_
    if cls is Any or not isinstance(cls, type) or isabstract(cls):
        return None
    if is_typeddict(cls):
        return [dict]
    return [float, int] if cls is float else [cls]


def types_overlap(type_: Any, annotation: Any) -> bool:
    """Whether a value of this type can match the annotation; true if that cannot be decided."""
    given, wanted = _classes(type_), _classes(annotation)
    if given is None or wanted is None or any(getattr(cls, "_is_protocol", False) for cls in wanted):
        return True
    return any(issubclass(cls, other) or issubclass(other, cls) for cls in given for other in wanted)


def allows_none(type_: Any) -> bool:
    """Whether None is a value of this type: `X | None`, None itself, or Any."""
    if type_ in (Any, None, NoneType):
        return True
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return allows_none(arguments[0])
    return (origin is Union or origin is UnionType) and any(map(allows_none, arguments))


def may_have_field(type_: Any, field: str) -> bool:
    """Whether a value of this type can have such a field; true if that cannot be decided."""
    classes = _classes(type_)
    return classes is None or any(_may_have_field(cls, field) for cls in classes)


def _may_have_field(cls: type, field: str) -> bool:
    if cls is dict or hasattr(cls, field) or hasattr(cls, "__attrs_attrs__") or _is_dynamic(cls):
        return True
    return any(field in getattr(base, "__annotations__", ()) for base in cls.__mro__)


def _is_dynamic(cls: Any) -> bool:
    """Whether instances may have attributes that the class does not declare."""
    find = getattr(cls, "__getattr__", None)
    if find is not None and find.__module__ == "pydantic.main":
        return bool(cls.model_config.get("extra") == "allow")
    return find is not None


def _exact(type_: Any) -> type | None:
    classes = [cls for cls in _classes(type_) or () if cls is not NoneType]
    return classes[0] if len(classes) == 1 else None


def _is_anything(_: Any) -> bool:
    return True


def _is_model(models: frozenset[type], value: Any) -> bool:
    """Subclasses are rejected: they would be decoded as the declared class and lose their own fields."""
    return type(value) in models


def _is_one_of(models: frozenset[type], plain: tuple[type, ...], value: Any) -> bool:
    """A bool is an int in Python, but not in JSON: it must be declared as bool."""
    cls = type(value)
    return cls in plain or cls in models or (cls is not bool and isinstance(value, plain))


def _descends(cls: Any, module: str, name: str) -> bool:
    return any(base.__name__ == name and base.__module__ == module for base in getattr(cls, "__mro__", ()))


def _unsupported(type_: Any, reason: str) -> DefinitionError:
    return DefinitionError(
        f"values of type {type_name(type_)} cannot be stored or sent: {reason}. Supported: {SUPPORTED}."
    )


def type_name(type_: Any) -> str:
    if isinstance(type_, type) and get_origin(type_) is None:
        return type_.__qualname__.rpartition("<locals>.")[2]
    return repr(type_).replace("typing.", "")


def _detail(failure: BaseException) -> str:
    if isinstance(failure, RecursionError):
        return "it is nested too deeply"
    errors = getattr(failure, "errors", None)
    if errors is None or not type(failure).__module__.startswith("pydantic"):
        return str(failure) or type(failure).__name__
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{first['msg']} - at `{'.'.join(map(str, ('$', *first['loc'])))}`"

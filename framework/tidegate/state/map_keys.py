"""The bytes of a map's keys, in the order of the keys.

Keys of str, bytes, bool and date are written as other keys are: text as UTF-8, bytes as they are, the rest as JSON. The
order of those bytes is the order of the keys. Other types with an order have an encoding of their own (layout 1), in
which every value begins with a tag:

    81  length(4) magnitude             int below -2^63, all bits after the tag inverted
    82  value (8)                       negative int, in two's complement
    83  value (8)                       int from 0 on
    84  length(4) magnitude             int from 2^63 on
    88  bits (8)                        float, the sign bit inverted, and all bits of negative ones
    90  microseconds + 2^63 (8)         datetime without an offset, since 1970 by its own clock
    91  microseconds + 2^63 (8)         datetime, since 1970 in UTC
    a0  items 00                        tuple

Within a tuple only:

    b0  text 00 00                      str, in which 00 is written as 00 FF
    b1  bytes 00 00                     bytes, likewise
    b2  00 or 01                        bool
    b4  day (4)                         date

Neither JSON nor UTF-8 begins with one of these tags. So the first byte tells an entry of layout 0, in which these types
were written as JSON, from one of layout 1, and a store may hold both while it is rewritten. Keys of all other types are
JSON, in the order of its bytes, which means nothing: they have no ranges.
"""

from __future__ import annotations

import math
import struct
import typing
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from struct import Struct
from types import EllipsisType
from typing import Annotated, Any, Final, NewType

from tidegate.codecs import codec_for, type_name
from tidegate.errors import DataError, DecodeError, EncodeError, UsageError
from tidegate.keys import encode_key, key_decoder
from tidegate.state.layout import ESCAPED, KEY_END

__all__ = ("LAYOUT", "MapKeys", "map_keys", "plain_subkey")

LAYOUT: Final = 1
"""The newest layout of map keys. A state whose keys need none keeps 0."""

_LOW, _NEGATIVE, _INT, _HIGH, _FLOAT, _NAIVE, _AWARE, _TUPLE = 0x81, 0x82, 0x83, 0x84, 0x88, 0x90, 0x91, 0xA0
_STR, _BYTES, _BOOL, _DATE = 0xB0, 0xB1, 0xB2, 0xB4
_TAGS: Final = frozenset((_LOW, _NEGATIVE, _INT, _HIGH, _FLOAT, _NAIVE, _AWARE, _TUPLE))
"""What an entry of layout 1 begins with."""
_END: Final = 0
"""After the items of a tuple: a tuple that is the beginning of another one comes before it."""

_MOST_KNOWN: Final = 10_000
_SIGN: Final = 1 << 63
_whole: Final = Struct(">Bq")
_moment: Final = Struct(">BQ")
_real: Final = Struct(">d")
_length: Final = Struct(">BI")
_day: Final = Struct(">BI")
_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_MOMENT: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH_UTC) // _MICROSECOND
_LAST_MOMENT: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH_UTC) // _MICROSECOND

Encode = Callable[[Any], bytes]


class MapKeys:
    """The keys of one map state. Made once per type, see `map_keys`."""

    __slots__ = ("_check", "_former", "_parts", "_raw", "decode", "encode", "layout", "ordered", "type")

    def __init__(self, key_type: Any) -> None:
        self.type = key_type
        plain, writer = _plain_type(key_type), _writer(key_type)
        self.ordered = writer is not None
        """Whether the order of their bytes is the order of the keys."""
        self.layout = 0 if writer is None or plain in (str, bytes, bool, date) else LAYOUT
        self.encode: Encode = encode_key if self.layout == 0 or writer is None else writer
        if self.layout and plain is not int:
            self.encode = _Known(self.encode).__getitem__
        self._former = key_decoder(plain if self.ordered else key_type)
        self._raw = plain is bytes
        self.decode: Callable[[bytes], Any] = _decode if self.layout else self._former
        self._check = codec_for(key_type).check
        self._parts = _items_of(plain)

    def fits(self, key: Any) -> bool:
        return type(key) is self.type or self._check(key)

    def plain(self, sub: bytes) -> bytes:
        """A stored key of any layout as other keys are written: what people and other programs read."""
        return sub if self._raw else plain_subkey(sub)

    def stored(self, sub: bytes) -> bytes:
        """A key of any layout, or as other keys are written, as it is stored now."""
        if not self._raw and sub and sub[0] in _TAGS:
            return self.encode(_decode(sub))
        return self.encode(self._former(sub)) if self.layout else sub

    def bound(self, state: str, key: Any) -> bytes:
        """The end of a range. Of tuples it may be the beginning: ("a",) comes before all ("a", 1)."""
        parts = self._parts
        if isinstance(key, tuple) and parts is not None and len(key) < len(parts):
            return map_keys(tuple.__class_getitem__(parts[: len(key)])).encode(key)
        if not self.fits(key):
            raise EncodeError(f"map {state!r} has keys of {type_name(self.type)}: {key!r} is no bound of a range of it")
        return self.encode(key)

    def refuse_range(self, state: str) -> None:
        if not self.ordered:
            raise UsageError(
                f"map {state!r} has keys of {type_name(self.type)}, which have no order in the store: range(), first() "
                f"and last() are for keys of int, float, str, bytes, bool, datetime, date, and tuples of these. "
                f"Declare such a key, as in MapState[tuple[str, int], ...], or iterate over items()"
            )


class _Known(dict[Any, bytes]):
    """Keys that were encoded before: to find one takes 0.03 µs, to encode a pair 0.2 µs. When it is full it stays as it
    is for a while: to replace one key with another would take longer than to encode both."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._missed = 0

    def __missing__(self, key: Any) -> bytes:
        raw = self._encode(key)
        if len(self) < _MOST_KNOWN:
            self[key] = raw
        else:
            self._missed += 1
            if self._missed >= 10 * _MOST_KNOWN:
                self.clear()
                self._missed = 0
        return raw


@lru_cache(maxsize=256)
def map_keys(key_type: Any) -> MapKeys:
    return MapKeys(key_type)


def plain_subkey(sub: bytes) -> bytes:
    """`MapKeys.plain` for keys of a type that is not at hand, which is not bytes."""
    return encode_key(_decode(sub)) if sub and sub[0] in _TAGS else sub


# ---------------------------------------------------------------------------------------------------------- writing


def _writer(key_type: Any) -> Encode | None:
    """None: keys of this type have no order."""
    key_type = _plain_type(key_type)
    if key_type in _WRITERS:
        return _WRITERS[key_type]
    if typing.get_origin(key_type) is not tuple:
        return None
    arguments = typing.get_args(key_type)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = _part_writer(arguments[0])
        return None if inner is None else _of_any_length(key_type, inner)
    writers = [writer for argument in arguments if (writer := _part_writer(argument)) is not None]
    return _of_items(key_type, writers) if len(writers) == len(arguments) else None


def _of_any_length(key_type: Any, write: Encode) -> Encode:
    def encode(key: Any) -> bytes:
        try:
            return b"\xa0" + b"".join([write(item) for item in key]) + b"\x00"
        except _MISFITS as error:
            raise _misfit(key_type, key) from error

    return encode


def _of_items(key_type: Any, writers: list[Encode]) -> Encode:
    def encode(key: Any) -> bytes:
        try:
            return b"\xa0" + b"".join([write(item) for write, item in zip(writers, key, strict=True)]) + b"\x00"
        except _MISFITS as error:
            raise _misfit(key_type, key) from error

    def encode_pair(key: Any) -> bytes:
        try:
            first, second = key
            return b"\xa0" + one(first) + other(second) + b"\x00"
        except _MISFITS as error:
            raise _misfit(key_type, key) from error

    if len(writers) != 2:
        return encode
    one, other = writers  # as a rule: it is faster
    return encode_pair


_MISFITS: Final = (TypeError, ValueError, AttributeError, struct.error)


def _misfit(key_type: Any, key: Any) -> EncodeError:
    """The check of a tuple's type does not look at its items."""
    return EncodeError(f"{key!r} cannot be a key of type {type_name(key_type)}")


def _part_writer(key_type: Any) -> Encode | None:
    """Of an item of a tuple."""
    return _PART_WRITERS.get(_plain_type(key_type)) or _writer(key_type)


def _plain_type(key_type: Any) -> Any:
    """Without what only checks."""
    while typing.get_origin(key_type) is Annotated or isinstance(key_type, NewType):
        key_type = key_type.__supertype__ if isinstance(key_type, NewType) else typing.get_args(key_type)[0]
    return key_type


def _items_of(key_type: Any) -> tuple[Any, ...] | None:
    """The types of a tuple's items, if each has its own."""
    arguments = typing.get_args(key_type) if typing.get_origin(key_type) is tuple else ()
    return arguments if arguments and not any(isinstance(part, EllipsisType) for part in arguments) else None


def _int(key: int) -> bytes:
    try:
        return _whole.pack(_INT if key >= 0 else _NEGATIVE, key)
    except struct.error:
        magnitude = abs(key)
        raw = _length.pack(_HIGH, (magnitude.bit_length() + 7) // 8)[1:]
        raw += magnitude.to_bytes((magnitude.bit_length() + 7) // 8)
        return bytes((_HIGH,)) + raw if key > 0 else bytes((_LOW,)) + _inverted(raw)


def _float(key: float) -> bytes:
    try:
        raw = _real.pack(key + 0.0)  # -0.0 is 0.0
    except OverflowError:  # a whole number
        key = math.inf
    if not math.isfinite(key):
        raise EncodeError(f"{key!r} cannot be a key")
    return bytes((_FLOAT,)) + (_inverted(raw) if raw[0] & 0x80 else bytes((raw[0] | 0x80,)) + raw[1:])


def _datetime(key: datetime) -> bytes:
    if key.tzinfo is None:
        return _moment.pack(_NAIVE, (key - _EPOCH) // _MICROSECOND + _SIGN)
    moment = (key - _EPOCH_UTC) // _MICROSECOND
    if not _FIRST_MOMENT <= moment <= _LAST_MOMENT:
        raise EncodeError(f"{key!r} cannot be a key: in UTC it is not between the years 1 and 9999")
    return _moment.pack(_AWARE, moment + _SIGN)


def _text(key: str) -> bytes:
    raw = key.encode()
    return b"\xb0" + (raw.replace(b"\x00", ESCAPED) if b"\x00" in raw else raw) + KEY_END


def _bytes(key: bytes) -> bytes:
    return b"\xb1" + key.replace(b"\x00", ESCAPED) + KEY_END


def _bool(key: bool) -> bytes:
    if key is not True and key is not False:
        raise TypeError(key)
    return b"\xb2\x01" if key else b"\xb2\x00"


def _date(key: date) -> bytes:
    if isinstance(key, datetime):  # which is a date, too
        raise TypeError(key)
    return _day.pack(_DATE, key.toordinal())


def _inverted(raw: bytes) -> bytes:
    return bytes(255 - byte for byte in raw)


_WRITERS: Final[dict[Any, Encode]] = {
    int: _int, float: _float, datetime: _datetime,
    str: encode_key, bytes: encode_key, bool: encode_key, date: encode_key,
}  # fmt: skip
_PART_WRITERS: Final[dict[Any, Encode]] = {str: _text, bytes: _bytes, bool: _bool, date: _date}


# ---------------------------------------------------------------------------------------------------------- reading


def _decode(sub: bytes) -> Any:
    if sub[0] == _INT and len(sub) == _whole.size:  # as a rule
        return _whole.unpack(sub)[1]
    try:
        key, end = _read(sub, 0)
    except (DataError, ValueError, IndexError, struct.error, OverflowError) as error:
        raise DecodeError(f"{sub!r} is not the key of a map: {error}") from error
    if end != len(sub):
        raise DecodeError(f"{sub!r} is not the key of a map: it has trailing bytes")
    return key


def _read(raw: bytes, at: int) -> tuple[Any, int]:
    """The value at `at`, and where what follows it begins."""
    read = _READERS.get(raw[at])
    if read is None:
        raise ValueError(f"no value begins with {raw[at]:02x}")
    return read(raw, at)


def _read_int(raw: bytes, at: int) -> tuple[int, int]:
    return _whole.unpack_from(raw, at)[1], at + _whole.size


def _read_moment(raw: bytes, at: int) -> tuple[timedelta, int]:
    return timedelta(microseconds=_moment.unpack_from(raw, at)[1] - _SIGN), at + _moment.size


def _read_high(raw: bytes, at: int) -> tuple[int, int]:
    _, length = _length.unpack_from(raw, at)
    start = at + _length.size
    return int.from_bytes(_all_of(raw, start, length)), start + length


def _read_low(raw: bytes, at: int) -> tuple[int, int]:
    (_, inverted), start = _length.unpack_from(raw, at), at + _length.size
    length = 0xFFFFFFFF - inverted
    return -int.from_bytes(_inverted(_all_of(raw, start, length))), start + length


def _read_float(raw: bytes, at: int) -> tuple[float, int]:
    bits = _all_of(raw, at + 1, 8)
    bits = bytes((bits[0] & 0x7F,)) + bits[1:] if bits[0] & 0x80 else _inverted(bits)
    return _real.unpack(bits)[0], at + 9


def _read_naive(raw: bytes, at: int) -> tuple[datetime, int]:
    since, end = _read_moment(raw, at)
    return _EPOCH + since, end


def _read_aware(raw: bytes, at: int) -> tuple[datetime, int]:
    since, end = _read_moment(raw, at)
    return _EPOCH_UTC + since, end


def _read_tuple(raw: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    items, at = [], at + 1
    while raw[at] != _END:
        item, at = _read(raw, at)
        items.append(item)
    return tuple(items), at + 1


def _read_bytes(raw: bytes, at: int) -> tuple[bytes, int]:
    end = raw.index(KEY_END, at + 1)  # not within the value: there, 00 is always followed by FF
    return raw[at + 1 : end].replace(ESCAPED, b"\x00"), end + 2


def _read_text(raw: bytes, at: int) -> tuple[str, int]:
    found, end = _read_bytes(raw, at)
    return found.decode(), end


def _read_bool(raw: bytes, at: int) -> tuple[bool, int]:
    return raw[at + 1] == 1, at + 2


def _read_date(raw: bytes, at: int) -> tuple[date, int]:
    return date.fromordinal(_day.unpack_from(raw, at)[1]), at + _day.size


def _all_of(raw: bytes, start: int, length: int) -> bytes:
    found = raw[start : start + length]
    if len(found) < length:
        raise ValueError("it ends too early")
    return found


_READERS: Final[dict[int, Callable[[bytes, int], tuple[Any, int]]]] = {
    _LOW: _read_low, _NEGATIVE: _read_int,
    _INT: _read_int, _HIGH: _read_high, _FLOAT: _read_float, _NAIVE: _read_naive, _AWARE: _read_aware,
    _TUPLE: _read_tuple, _STR: _read_text, _BYTES: _read_bytes, _BOOL: _read_bool, _DATE: _read_date,
}  # fmt: skip

"""The format of store keys, for each kind of state.

    01                                                            the commit marker
    02 len name  group  key 00 00  [subkey]                       keyed state: one entry per key, or one per subkey
    03           group  key 00 00  name                           timer index: domain and time of a key's timer
    04 domain time      key 00 00  name                           timer queue: the timers in the order they are due
    05 len name  index                                            operator state: a list
    06 name                                                       the schema of a state

The first byte is the tag. `name` is UTF-8, and `len` counts its bytes. `group` is the key group, so that a range of
groups is a range of bytes, which is what a rescale moves. In a key, 00 is escaped as 00 FF: no key is a prefix of
another, and the order is kept. `time` is milliseconds, eight bytes, shifted so that negative ones come first.
The queue is derived from the index and exists only in the store: it is not in changelogs.

The value of an entry of a state with a time to live is prefixed with its time of expiry: milliseconds, eight bytes,
signed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tidegate.errors import DefinitionError
from tidegate.keys import KEY_GROUPS, key_hash

__all__ = (
    "ESCAPED",
    "EVENT",
    "EXPIRY",
    "KEYED",
    "KEY_END",
    "MARKER",
    "OPERATOR",
    "PROCESSING",
    "QUEUE",
    "SCHEMA",
    "TIMER",
    "KeyedEntry",
    "QueuedTimer",
    "TimerEntry",
    "escape_key",
    "group_prefixes",
    "group_range",
    "key_range",
    "keyed_key",
    "keyed_prefix",
    "operator_key",
    "operator_prefix",
    "pack_due",
    "parse_keyed",
    "parse_operator",
    "parse_queue",
    "parse_tail",
    "parse_timer",
    "prefix_range",
    "queue_key",
    "queue_range",
    "timer_group_range",
    "timer_key",
    "timer_prefix",
    "unpack_due",
)

MARKER: Final = b"\x01"
"""The one key of the commit marker."""
KEYED: Final = b"\x02"
TIMER: Final = b"\x03"
QUEUE: Final = b"\x04"
OPERATOR: Final = b"\x05"
SCHEMA: Final = b"\x06"

EVENT: Final = 0
"""The domain of timers that fire by the watermark."""
PROCESSING: Final = 1
"""The domain of timers that fire by the clock."""

EXPIRY: Final = Struct(">q")
"""The time of expiry, a prefix of the value."""

KEY_END: Final = b"\x00\x00"
"""The terminator of a key."""
ESCAPED: Final = b"\x00\xff"
"""The escape sequence for a 00 in a key."""
_SIGN: Final = 1 << 63
_due: Final = Struct(">BQ")
_index: Final = Struct(">Q")
_GROUP: Final = tuple(bytes((group,)) for group in range(KEY_GROUPS))


class KeyedEntry(NamedTuple):
    name: str
    group: int
    key: bytes
    subkey: bytes


class TimerEntry(NamedTuple):
    group: int
    key: bytes
    name: str


class QueuedTimer(NamedTuple):
    domain: int
    time: int
    key: bytes
    name: str


# ------------------------------------------------------------------------------------------------------ keyed state


def keyed_prefix(name: str) -> bytes:
    """The prefix of all entries of a state."""
    return KEYED + _sized(name)


def keyed_key(prefix: bytes, key: bytes) -> bytes:
    """The store key of a key's value; subkeys are appended to it unchanged."""
    return prefix + _GROUP[key_hash(key) % KEY_GROUPS] + key.replace(b"\x00", ESCAPED) + KEY_END


def group_prefixes(prefix: bytes) -> tuple[bytes, ...]:
    """The prefix of the entries of each key group."""
    return tuple(prefix + group for group in _GROUP)


def parse_keyed(entry: bytes) -> KeyedEntry:
    start = 2 + entry[1]
    key, end = _read_key(entry, start + 1)
    return KeyedEntry(entry[2:start].decode(), entry[start], key, entry[end:])


def escape_key(key: bytes) -> bytes:
    """A key, or a prefix of one, as it is encoded in store keys."""
    return key.replace(b"\x00", ESCAPED)


def parse_tail(tail: bytes) -> tuple[bytes, bytes]:
    """Parses the part after the key group: the key and the subkey."""
    key, end = _read_key(tail, 0)
    return key, tail[end:]


def key_range(prefix: bytes, key: bytes) -> tuple[bytes, bytes]:
    """All subkeys of one key."""
    start = keyed_key(prefix, key)
    return start, start[:-1] + b"\x01"


def group_range(prefix: bytes, first: int, last: int | None = None) -> tuple[bytes, bytes]:
    """The entries of one key group, or of those from `first` to `last`, both included."""
    return prefix + _GROUP[first], prefix + bytes(((first if last is None else last) + 1,))


# ----------------------------------------------------------------------------------------------------------- timers


def timer_key(key: bytes, name: str) -> bytes:
    return timer_prefix(key) + name.encode()


def timer_prefix(key: bytes) -> bytes:
    """The prefix of all timers of a key."""
    return keyed_key(TIMER, key)


def timer_group_range(first: int, last: int | None = None) -> tuple[bytes, bytes]:
    """The timers of one key group, or of those from `first` to `last`, both included."""
    return group_range(TIMER, first, last)


def parse_timer(entry: bytes) -> TimerEntry:
    key, end = _read_key(entry, 2)
    return TimerEntry(entry[1], key, entry[end:].decode())


def pack_due(domain: int, time: int) -> bytes:
    """The value of a timer: its domain and its time."""
    return _due.pack(domain, time + _SIGN)


def unpack_due(value: bytes) -> tuple[int, int]:
    domain, time = _due.unpack(value)
    return domain, time - _SIGN


def queue_key(domain: int, time: int, key: bytes, name: str) -> bytes:
    return QUEUE + _due.pack(domain, time + _SIGN) + key.replace(b"\x00", ESCAPED) + KEY_END + name.encode()


def parse_queue(entry: bytes) -> QueuedTimer:
    domain, time = _due.unpack_from(entry, 1)
    key, end = _read_key(entry, 10)
    return QueuedTimer(domain, time - _SIGN, key, entry[end:].decode())


def queue_range(domain: int, time: int) -> tuple[bytes, bytes]:
    """The timers of a domain that are due at `time` or before."""
    start, end = prefix_range(QUEUE + bytes((domain,)))
    if time < -_SIGN:
        return start, start
    return start, end if time >= _SIGN - 1 else QUEUE + _due.pack(domain, time + 1 + _SIGN)


# --------------------------------------------------------------------------------------------------- operator state


def operator_prefix(name: str) -> bytes:
    """The prefix of all items of an operator state."""
    return OPERATOR + _sized(name)


def operator_key(name: str, index: int) -> bytes:
    return operator_prefix(name) + _index.pack(index)


def parse_operator(entry: bytes) -> tuple[str, int]:
    start = 2 + entry[1]
    return entry[2:start].decode(), _index.unpack_from(entry, start)[0]


# ------------------------------------------------------------------------------------------------------------ parts


def prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    """The range of all keys with this prefix, which must not consist of FF bytes only."""
    stem = prefix.rstrip(b"\xff")
    return prefix, stem[:-1] + bytes((stem[-1] + 1,))


def _sized(name: str) -> bytes:
    raw = name.encode()
    if not 0 < len(raw) < 256:
        raise DefinitionError(f"the name of a state must take 1 to 255 bytes, and {name[:40]!r} takes {len(raw)}")
    return bytes((len(raw),)) + raw


def _read_key(entry: bytes, start: int) -> tuple[bytes, int]:
    """The key at `start`, and the index after its terminator."""
    end = entry.index(KEY_END, start)  # cannot match within the key, where 00 is always followed by FF
    return entry[start:end].replace(ESCAPED, b"\x00"), end + 2

"""Position tokens: the commits that a response includes, or the records that a write has appended. Opaque to clients.

A token names commits of tasks, by the changelog positions after them, and positions in topics. A read with
`min_position` waits until the queried service has committed everything in the token that concerns it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidegate.errors import PositionError

__all__ = ("Position", "merge", "parse_position")

_MAX_LENGTH: Final = 16_384


class Position(msgspec.Struct, array_like=True, frozen=True):
    run: str
    tasks: dict[str, tuple[str, int]] = {}
    """By task name: the lineage of its changelog, and the position after a commit."""
    topics: dict[str, dict[int, int]] = {}
    """By topic and partition: the position after an appended record."""

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(_encoder.encode(self)).decode().rstrip("=")


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Position)


def parse_position(token: str) -> Position:
    try:
        if len(token) > _MAX_LENGTH:
            raise ValueError
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        return _decoder.decode(raw)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise PositionError(
            "min_position is not a position token: send back the value of a Tidegate-Position header, unchanged"
        ) from None


def merge(run: str, positions: Iterable[Position]) -> Position:
    """The union of the positions: the highest of each task and partition."""
    tasks: dict[str, tuple[str, int]] = {}
    topics: dict[str, dict[int, int]] = {}
    for position in positions:
        for task, at in position.tasks.items():
            tasks[task] = max(tasks.get(task, at), at)
        for topic, reached in position.topics.items():
            known: Mapping[int, int] = topics.get(topic, {})
            topics[topic] = {number: max(at, known.get(number, at)) for number, at in {**known, **reached}.items()}
    return Position(run, tasks, topics)

"""Redistributes operator state when the number of tasks changes: split among them, or a union for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from tidegate.errors import DecodeError

__all__ = ("redistribute",)

_items = msgspec.json.Decoder(list[msgspec.Raw])


def redistribute(stored: Iterable[bytes | None], tasks: int, how: Literal["split", "union"]) -> list[bytes | None]:
    """From the JSON lists of the old tasks to those of the new ones.

    `split`: each item goes to one task, in contiguous ranges that keep the order. `union`: each task gets all items."""
    try:
        items = [item for raw in stored if raw is not None for item in _items.decode(raw)]
    except msgspec.MsgspecError as error:
        raise DecodeError(f"an operator state in the savepoint is not a JSON list: {error}") from error
    if how == "union":
        return [_encoded(items)] * tasks
    bounds = [len(items) * number // tasks for number in range(tasks + 1)]
    return [_encoded(items[start:end]) for start, end in pairwise(bounds)]


def _encoded(items: Sequence[msgspec.Raw]) -> bytes | None:
    return b"[" + b",".join(map(bytes, items)) + b"]" if items else None

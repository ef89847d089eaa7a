"""Operator state when the number of tasks changes: dealt out anew, or given to everybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from tidegate.errors import DecodeError

__all__ = ("redistribute",)

_items = msgspec.json.Decoder(list[msgspec.Raw])


def redistribute(stored: Iterable[bytes | None], tasks: int, how: Literal["split", "union"]) -> list[bytes | None]:
    """From the lists of the tasks as they were to those of the tasks as they will be, as JSON.

    `split`: each item goes to one task, in runs that keep the order. `union`: each task gets all items."""
    try:
        items = [item for raw in stored if raw is not None for item in _items.decode(raw)]
    except msgspec.MsgspecError as error:
        raise DecodeError(f"an operator state is not the list that it should be: {error}") from error
    if how == "union":
        return [_written(items)] * tasks
    bounds = [len(items) * number // tasks for number in range(tasks + 1)]
    return [_written(items[start:end]) for start, end in pairwise(bounds)]


def _written(items: Sequence[msgspec.Raw]) -> bytes | None:
    return b"[" + b",".join(map(bytes, items)) + b"]" if items else None

"""The difference between two savepoints: keys added, removed and changed, state by state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tidegate.checkpoints.storage.savepoint_state import SavepointState, StateEntry
from tidegate.keys import key_group

__all__ = ("Difference", "StateDifference", "differences", "differing_states")

Change = Literal["added", "removed", "changed"]
Keyed = tuple[bytes, list[StateEntry]]


class Difference(NamedTuple):
    key: bytes
    change: Change
    before: list[StateEntry]
    after: list[StateEntry]


class StateDifference(NamedTuple):
    service: str
    state: str
    present_in: Literal["both", "before", "after"]
    """A state may be in only one of the savepoints."""


def differing_states(before: SavepointState, after: SavepointState) -> Iterator[StateDifference]:
    """Every state that one of the savepoints has."""
    for service in sorted({*before.services, *after.services}):
        old = before.schemas(service) if service in before.services else {}
        new = after.schemas(service) if service in after.services else {}
        for state in sorted({*old, *new}):
            present_in: Literal["both", "before", "after"] = "both"
            if state not in new:
                present_in = "before"
            elif state not in old:
                present_in = "after"
            yield StateDifference(service, state, present_in)


def differences(before: SavepointState, after: SavepointState, what: StateDifference) -> Iterator[Difference | None]:
    """One item per key, in the order of the stores; None for an unchanged key. Streams both savepoints once."""
    olds = before.keys(what.service, what.state) if what.present_in != "after" else iter(())
    news = after.keys(what.service, what.state) if what.present_in != "before" else iter(())
    old, new = next(olds, None), next(news, None)
    while old is not None or new is not None:
        if new is None or (old is not None and _order(old) < _order(new)):
            assert old is not None  # noqa: S101  one of them is there
            yield Difference(old[0], "removed", old[1], [])
            old = next(olds, None)
        elif old is None or _order(new) < _order(old):
            yield Difference(new[0], "added", [], new[1])
            new = next(news, None)
        else:
            # The entries of a map come in another order in a savepoint that an earlier version took.
            same = old[1] == new[1] or sorted(old[1]) == sorted(new[1])
            yield None if same else Difference(old[0], "changed", old[1], new[1])
            old, new = next(olds, None), next(news, None)


def _order(keyed: Keyed) -> tuple[int, bytes]:
    """The order of the stores' keys."""
    return key_group(keyed[0]), keyed[0].replace(b"\x00", b"\x00\xff") + b"\x00\x00"

"""What has changed from one savepoint to another: which keys were added, removed or changed, state by state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tidegate.checkpoints.storage.contents import Contents, Stored
from tidegate.keys import key_group

__all__ = ("Difference", "StateDifference", "differences", "differing_states")

Change = Literal["added", "removed", "changed"]
Keyed = tuple[bytes, list[Stored]]


class Difference(NamedTuple):
    key: bytes
    change: Change
    before: list[Stored]
    after: list[Stored]


class StateDifference(NamedTuple):
    service: str
    state: str
    there: Literal["both", "before", "after"]
    """A state may be in one of them only."""


def differing_states(before: Contents, after: Contents) -> Iterator[StateDifference]:
    """Every state of either."""
    for service in sorted({*before.services, *after.services}):
        old = before.schemas(service) if service in before.services else {}
        new = after.schemas(service) if service in after.services else {}
        for state in sorted({*old, *new}):
            there: Literal["both", "before", "after"] = "both"
            if state not in new:
                there = "before"
            elif state not in old:
                there = "after"
            yield StateDifference(service, state, there)


def differences(before: Contents, after: Contents, what: StateDifference) -> Iterator[Difference | None]:
    """Key by key, in their order; None for each that is the same. Both are read once, and nothing is kept."""
    olds = before.keys(what.service, what.state) if what.there != "after" else iter(())
    news = after.keys(what.service, what.state) if what.there != "before" else iter(())
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
            yield None if old[1] == new[1] else Difference(old[0], "changed", old[1], new[1])
            old, new = next(olds, None), next(news, None)


def _order(keyed: Keyed) -> tuple[int, bytes]:
    """As the stores have it."""
    return key_group(keyed[0]), keyed[0].replace(b"\x00", b"\x00\xff") + b"\x00\x00"

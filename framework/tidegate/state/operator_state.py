"""The state handle of an OperatorState: a list that belongs to a task. See `handles`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Generic, TypeVar, get_args

from tidegate.codecs import codec_for
from tidegate.errors import EncodeError
from tidegate.state.handles import Move, StateHandle, TaskValueHandle
from tidegate.state.kinds import OperatorState
from tidegate.state.overlay import Cells, Journal

__all__ = ("OperatorHandle",)

T = TypeVar("T")


class _Changes(Generic[T]):
    """The changes of a running handler to an OperatorState, and the copies of items that it got, with their bytes."""

    __slots__ = ("applied", "copies")

    def __init__(self) -> None:
        self.applied: list[Callable[[list[T]], list[T]]] = []
        self.copies: list[tuple[list[T], bytes]] = []


class OperatorHandle(StateHandle, OperatorState[T], Generic[T]):
    """A list per task, stored as one value under an empty key. A change replaces the whole list, so that overlapping
    handlers do not see each other's unfinished changes: a handler that has suspended applies its changes to the current
    list when it ends. For the same reason, iteration gives copies of the items; mutating one without replacing the
    list, which would be lost, raises an EncodeError."""

    __slots__ = ("_immutable", "_journal", "_name", "_value")

    seen: _Changes[T] | None

    def __init__(self, name: str, value: TaskValueHandle[list[T]], journal: Journal) -> None:
        self._name, self._value, self._journal = name, value, journal
        (item_type,) = get_args(value.cells.codec.type)
        self._immutable = codec_for(item_type).immutable
        self.seen = None

    @property
    def leaf_handles(self) -> tuple[StateHandle, ...]:
        return (self, self._value)

    def move_to(self, move: Move) -> None:
        self._value.move_to(move)

    @property
    def cells(self) -> Cells:
        return self._value.cells

    def redo(self) -> None:
        """When a suspended handler ends: apply its changes to the shared list as it is now."""
        changes, self.seen = self.seen, None
        for change in changes.applied if changes is not None else ():
            self._apply(change)

    def _apply(self, change: Callable[[list[T]], list[T]]) -> None:
        self._changes.applied.append(change)
        self._value.value = change(list(self._value.value or ()))

    @property
    def _changes(self) -> _Changes[T]:
        if self.seen is None:
            self.seen = _Changes()
        return self.seen

    def append(self, item: T) -> None:
        self._apply(lambda items: [*items, item])

    def replace(self, items: Iterable[T]) -> None:
        kept = list(items)
        self._changes.copies.clear()  # the new list replaces mutated copies
        self._apply(lambda _: list(kept))

    def clear(self) -> None:
        self.replace(())

    def __iter__(self) -> Iterator[T]:
        items = list(self._value.value or ())
        return iter(items if self._immutable else self._copy(items))

    def _copy(self, items: list[T]) -> list[T]:
        """Copies of the items; when the handler ends, they are checked for mutations."""
        codec, copies = self.cells.codec, self._changes.copies
        if not copies:
            self._journal.checks.append(partial(self._refuse_mutations, copies))
        raw = codec.encode(items)
        copy: list[T] = codec.decode(raw)
        copies.append((copy, raw))
        return copy

    def _refuse_mutations(self, copies: list[tuple[list[T], bytes]]) -> None:
        for items, raw in copies:
            if self.cells.codec.encode(items) != raw:
                raise EncodeError(
                    f"an item of state {self._name!r} was changed in place, which would be lost: an OperatorState "
                    f"gives copies of its items. Put them back: {self._name}.replace(items)"
                )

    def __len__(self) -> int:
        return len(self._value.value or ())

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


class _Doings(Generic[T]):
    """What a running handler has done with an OperatorState, and the items that it was given, as they were."""

    __slots__ = ("done", "given")

    def __init__(self) -> None:
        self.done: list[Callable[[list[T]], list[T]]] = []
        self.given: list[tuple[list[T], bytes]] = []


class OperatorHandle(StateHandle, OperatorState[T], Generic[T]):
    """A task's own list, kept as one value under an empty key. Whole lists replace each other, so that overlapping
    handlers never see each other's half: a handler that suspended applies its doings to what is there when it ends.
    For the same reason its items do not change in place: what iterating gives are copies, and to change one without
    putting it back, which would be lost, is refused."""

    __slots__ = ("_fixed", "_journal", "_name", "_value")

    seen: _Doings[T] | None

    def __init__(self, name: str, value: TaskValueHandle[list[T]], journal: Journal) -> None:
        self._name, self._value, self._journal = name, value, journal
        (item_type,) = get_args(value.cells.codec.type)
        self._fixed = codec_for(item_type).immutable
        self.seen = None

    @property
    def parts(self) -> tuple[StateHandle, ...]:
        return (self, self._value)

    def move_to(self, move: Move) -> None:
        self._value.move_to(move)

    @property
    def cells(self) -> Cells:
        return self._value.cells

    def redo(self) -> None:
        """After privacy: do again what was done there, on what is shared by now."""
        doings, self.seen = self.seen, None
        for do in doings.done if doings is not None else ():
            self._do(do)

    def _do(self, do: Callable[[list[T]], list[T]]) -> None:
        self._doings.done.append(do)
        self._value.value = do(list(self._value.value or ()))

    @property
    def _doings(self) -> _Doings[T]:
        if self.seen is None:
            self.seen = _Doings()
        return self.seen

    def append(self, item: T) -> None:
        self._do(lambda items: [*items, item])

    def replace(self, items: Iterable[T]) -> None:
        kept = list(items)
        self._doings.given.clear()  # whatever was changed: this is what the list shall be
        self._do(lambda _: list(kept))

    def clear(self) -> None:
        self.replace(())

    def __iter__(self) -> Iterator[T]:
        items = list(self._value.value or ())
        return iter(items if self._fixed else self._given(items))

    def _given(self, items: list[T]) -> list[T]:
        """Copies, of which the handler's end will tell whether they have changed."""
        codec, given = self.cells.codec, self._doings.given
        if not given:
            self._journal.checks.append(partial(self._refuse_changes, given))
        raw = codec.encode(items)
        copies: list[T] = codec.decode(raw)
        given.append((copies, raw))
        return copies

    def _refuse_changes(self, given: list[tuple[list[T], bytes]]) -> None:
        for items, raw in given:
            if self.cells.codec.encode(items) != raw:
                raise EncodeError(
                    f"an item of state {self._name!r} was changed in place, which would be lost: an OperatorState "
                    f"gives copies of its items. Put them back: {self._name}.replace(items)"
                )

    def __len__(self) -> int:
        return len(self._value.value or ())

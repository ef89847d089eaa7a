"""State handles: the state objects that handlers get. Each accesses the current key through the cells of its state.

One set of handles belongs to one running handler, whose key and changes are in its journal. Before each record the
engine sets `seen` to None, since it belongs to the previous key. `move_to` replaces the cells of the handles when the
handler suspends and when it ends.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator
from functools import partial
from typing import Any, Final, Generic, TypeVar

from tidegate.codecs import type_name
from tidegate.errors import EncodeError
from tidegate.state.cells import MapCells
from tidegate.state.declaration import StateDeclaration
from tidegate.state.kinds import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from tidegate.state.map_keys import map_keys
from tidegate.state.overlay import ABSENT, Cells, Entry, Journal

__all__ = (
    "AggregatingHandle",
    "InlineValue",
    "ListHandle",
    "MapHandle",
    "Move",
    "ReducingHandle",
    "Single",
    "StateHandle",
    "TaskValueHandle",
    "ValueHandle",
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_NOTHING: Final = object()

Move = Callable[[Cells], Any]
"""From cells to their replacement."""


class StateHandle(State):
    """The engine's side of a state handle."""

    __slots__ = ("seen",)

    seen: Any
    """The entry that the running handler has accessed; None: none yet."""

    @abstractmethod
    def move_to(self, move: Move) -> None: ...

    @property
    def leaf_handles(self) -> tuple[StateHandle, ...]:
        """The handles whose `seen` must be reset before each record."""
        return (self,)


class Single(StateHandle):
    """A state of one entry per key."""

    __slots__ = ("_declaration", "_journal", "cells", "exact", "known_default")

    seen: Entry | None

    def __init__(self, declaration: StateDeclaration, cells: Cells, journal: Journal) -> None:
        self._declaration, self.cells, self._journal = declaration, cells, journal
        self.exact = cells.codec.exact if cells.plain else None
        """Values of exactly this class need no check."""
        self.known_default = cells.known_default
        self.seen = None

    def move_to(self, move: Move) -> None:
        self.cells = move(self.cells)
        self.seen = None

    def _enter(self) -> Entry:
        cells = self.cells
        entry = self.seen = cells.entry(self._journal.key)
        if not cells.plain:
            cells.enter(entry, self._journal)
        return entry

    def _get(self) -> Any:
        entry = self.seen or self._enter()
        value = entry.value
        return self.cells.missing(entry) if value is ABSENT else value

    def put(self, value: Any) -> None:
        if value is None:
            value = ABSENT
        elif not self.cells.codec.check(value):
            raise EncodeError(
                f"state {self._declaration.name!r} holds {type_name(self.cells.codec.type)}, not {type(value).__name__}"
            )
        self.cells.assign(self.seen or self._enter(), value, self._journal)

    def clear(self) -> None:
        self.put(None)


class ValueHandle(Single, ValueState[T], Generic[T]):
    __slots__ = ()

    # Most handlers call these two for every record, so the common case is inlined.
    @property
    def value(self) -> T:
        entry = self.seen or self._enter()
        value = entry.value
        if value is ABSENT:
            value = self.known_default
            if value is ABSENT:
                return self.cells.missing(entry)  # type: ignore[no-any-return]
        return value  # type: ignore[no-any-return]

    @value.setter
    def value(self, value: T) -> None:
        if type(value) is not self.exact:
            self.put(value)
            return
        entry = self.seen or self._enter()
        self._journal.undo.append((entry, entry.value, 0, self.cells))
        entry.value = value
        cells = self.cells
        if entry.changed != cells.commit_count:
            entry.changed = cells.commit_count
            cells.dirty.append(entry)

    @property
    def exists(self) -> bool:
        return self.cells.present(self.seen or self._enter())


class InlineValue(ValueState[Any]):
    """The handle of a plain value during direct calls: the value is inline, a mere attribute, which takes a fifth of
    the time. The dispatcher sets it before each record and reads it afterwards: an assigned value is checked then, and
    a failed handler needs no rollback."""

    __slots__ = ("live", "value")

    live: ValueHandle[Any]
    value: Any
    """ABSENT: no value is inline, and the handler uses the live handle."""

    def __init__(self, live: ValueHandle[Any]) -> None:
        self.live, self.value = live, ABSENT

    def activate(self) -> None:
        """Direct calls of handlers follow."""
        self.__class__ = InlineValue

    def deactivate(self) -> None:
        """The direct calls are over. A handler that kept this handle now gets the live handle's HandlerOverError."""
        self.__class__ = DelegatingValue

    def suspend(self, journal: Journal) -> None:
        """The handler suspends: from now on it uses the live handle, which gets the value assigned so far."""
        if type(self) is DelegatingValue:
            return
        value, live = self.value, self.live
        self.__class__ = DelegatingValue
        entry = live.seen
        if value is ABSENT or entry is None or value is entry.value:
            return
        try:
            live.value = value
        except EncodeError as error:
            journal.checks.append(partial(_refuse, error))

    @property
    def exists(self) -> bool:
        return self.value is not None  # absent values are not inlined

    def clear(self) -> None:
        """From here on the handler uses the live handle."""
        self.__class__ = DelegatingValue
        self.live.clear()


class DelegatingValue(InlineValue):
    """Delegates to the live handle, after the handler has suspended or ended."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        return self.live.value

    @value.setter
    def value(self, value: Any) -> None:
        self.live.value = value

    @property
    def exists(self) -> bool:
        return self.live.exists

    def clear(self) -> None:
        self.live.clear()


class TaskValueHandle(ValueHandle[T], Generic[T]):
    """One value for the whole task, independent of the key."""

    __slots__ = ()

    def _enter(self) -> Entry:
        entry = self.seen = self.cells.entry(b"")
        self.cells.enter(entry, self._journal)
        return entry


class ReducingHandle(Single, ReducingState[T], Generic[T]):
    __slots__ = ()

    def add(self, item: T) -> None:
        known = self._get()
        self.put(item if known is None else self._declaration.function(known, item))

    @property
    def value(self) -> T | None:
        return self._get()  # type: ignore[no-any-return]


class AggregatingHandle(Single, AggregatingState[Any, Any]):
    __slots__ = ()

    def add(self, item: Any) -> None:
        function = self._declaration.function
        known = self._get()
        self.put(function.add(function.create() if known is None else known, item))

    @property
    def value(self) -> Any:
        known = self._get()
        return None if known is None else self._declaration.function.result(known)


class MapHandle(StateHandle, MapState[K, V], Generic[K, V]):
    __slots__ = ("_cells", "_declaration", "_decode", "_encode", "_journal", "_key_type", "_keys")

    seen: dict[bytes, Entry] | None

    def __init__(self, declaration: StateDeclaration, cells: MapCells, journal: Journal) -> None:
        self._declaration, self._cells, self._journal = declaration, cells, journal
        self._keys = map_keys(declaration.key_type)
        self._key_type, self._encode, self._decode = declaration.key_type, self._keys.encode, self._keys.decode
        self.seen = None

    def move_to(self, move: Move) -> None:
        self._cells = move(self._cells)
        self.seen = None

    def _enter(self, sub: bytes, stored: bytes | None = None) -> Entry:
        seen = self.seen
        if seen is None:
            seen = self.seen = {}
        entry = seen.get(sub)
        if entry is None:
            cells, key = self._cells, self._journal.key
            entry = seen[sub] = cells.entry(key, sub) if stored is None else cells.adopt(key, sub, stored)
            if not cells.plain:
                cells.enter(entry, self._journal)
        return entry

    def _at(self, key: Any) -> Entry:
        """The entry of a map key."""
        if type(key) is not self._key_type and not self._keys.fits(key):
            raise EncodeError(
                f"map {self._declaration.name!r} has keys of {type_name(self._declaration.key_type)}, "
                f"not {type(key).__name__}"
            )
        return self._enter(self._encode(key))

    def _live(self, low: bytes = b"", high: bytes | None = None, *, reverse: bool = False) -> Iterator[Entry]:
        for sub, stored in self._cells.subkeys(self._journal.key, low, high, reverse=reverse):
            entry = self._enter(sub, stored)
            if self._cells.present(entry):
                yield entry

    def __getitem__(self, key: K) -> V:
        entry = self._at(key)
        if entry.value is not ABSENT:
            return entry.value  # type: ignore[no-any-return]
        if self._cells.default is None:
            raise KeyError(key)
        return self._cells.missing(entry)  # type: ignore[no-any-return]

    def get(self, key: K, default: Any = None) -> Any:
        entry = self._at(key)
        return entry.value if self._cells.present(entry) else default

    def __setitem__(self, key: K, value: V) -> None:
        if value is None:
            raise EncodeError(f"map {self._declaration.name!r} cannot hold None: remove the entry instead, with del")
        if not self._cells.codec.check(value):
            raise EncodeError(
                f"map {self._declaration.name!r} holds {type_name(self._cells.codec.type)}, not {type(value).__name__}"
            )
        self._cells.assign(self._at(key), value, self._journal)

    def __delitem__(self, key: K) -> None:
        entry = self._at(key)
        if not self._cells.present(entry):
            raise KeyError(key)
        self._cells.assign(entry, ABSENT, self._journal)

    # As in a defaultdict, only `map[key]` returns the default.
    def pop(self, key: K, default: Any = _NOTHING) -> Any:
        entry = self._at(key)
        if not self._cells.present(entry):
            if default is _NOTHING:
                raise KeyError(key)
            return default
        value = entry.value
        self._cells.assign(entry, ABSENT, self._journal)
        return value

    def setdefault(self, key: K, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __contains__(self, key: object) -> bool:
        return self._cells.present(self._at(key))

    def __iter__(self) -> Iterator[K]:
        return (self._decode(entry.sub) for entry in self._live())

    def range(
        self, start: K | tuple[Any, ...] | None = None, end: K | tuple[Any, ...] | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        name, keys = self._declaration.name, self._keys
        keys.refuse_range(name)
        low = b"" if start is None else keys.bound(name, start)
        high = None if end is None else keys.bound(name, end)
        return ((self._decode(entry.sub), entry.value) for entry in self._live(low, high, reverse=reverse))

    def pairs(self) -> Iterator[tuple[K, V]]:
        return ((self._decode(entry.sub), entry.value) for entry in self._live())

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def first(self) -> tuple[K, V] | None:
        return next(self.range(), None)

    def last(self) -> tuple[K, V] | None:
        return next(self.range(reverse=True), None)

    def __len__(self) -> int:
        return sum(1 for _ in self._live())

    def __bool__(self) -> bool:
        return next(self._live(), None) is not None

    def clear(self) -> None:
        for entry in list(self._live()):
            self._cells.assign(entry, ABSENT, self._journal)


class _Items(ItemsView[K, V]):
    """Without looking each key up once more."""

    _mapping: MapHandle[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.pairs()


class ListHandle(StateHandle, ListState[T], Generic[T]):
    """Items with increasing indexes, and the bounds of the present ones."""

    __slots__ = ("_bounds", "_items")

    def __init__(self, items: MapHandle[bytes, T], bounds: ValueHandle[tuple[int, int]]) -> None:
        self._items, self._bounds = items, bounds

    @property
    def leaf_handles(self) -> tuple[StateHandle, ...]:
        return (self._items, self._bounds)

    def move_to(self, move: Move) -> None:
        self._items.move_to(move)
        self._bounds.move_to(move)

    def append(self, item: T) -> None:
        start, end = self._bounds.value
        self._items[_index(end)] = item
        self._bounds.value = (start, end + 1)

    def extend(self, items: Iterable[T]) -> None:
        for item in items:
            self.append(item)

    def replace(self, items: Iterable[T]) -> None:
        kept = list(items)
        self.clear()
        self.extend(kept)

    def popleft(self) -> T:
        start, end = self._bounds.value
        for index in range(start, end):
            sub = _index(index)
            if sub in self._items:  # an item may have expired
                item: T = self._items.pop(sub)
                if index + 1 == end:
                    self._bounds.clear()
                else:
                    self._bounds.value = (index + 1, end)
                return item
        raise IndexError("popleft from an empty list")

    def __iter__(self) -> Iterator[T]:
        return (item for _, item in self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> T:
        return list(self)[index]

    def __bool__(self) -> bool:
        return bool(self._items)

    def clear(self) -> None:
        self._items.clear()
        self._bounds.clear()


def _refuse(error: EncodeError) -> None:
    raise error


def _index(number: int) -> bytes:
    return number.to_bytes(8, "big")

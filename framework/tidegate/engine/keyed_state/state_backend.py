"""The state backend of a task: cells for each declared state, and the state handles of handlers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.codecs import codec_for
from tidegate.engine.keyed_state.store_keys import SingleStoreKey, StoreKeys
from tidegate.engine.keyed_state.timers import TimerCells
from tidegate.functions.definition import ServiceDefinition
from tidegate.state.base import Store
from tidegate.state.cells import ListCells, MapCells, ValueCells
from tidegate.state.declaration import StateDeclaration
from tidegate.state.handles import (
    AggregatingHandle,
    ListHandle,
    MapHandle,
    ReducingHandle,
    StateHandle,
    TaskValueHandle,
    ValueHandle,
)
from tidegate.state.kinds import Default
from tidegate.state.layout import TIMER, keyed_prefix, operator_key
from tidegate.state.operator_state import OperatorHandle
from tidegate.state.overlay import Cells, Journal

__all__ = ("StateBackend",)

_SINGLE = {"value": ValueHandle, "reducing": ReducingHandle, "aggregating": AggregatingHandle}


class StateBackend:
    """The cells of all states and timers of a task."""

    def __init__(
        self,
        definition: ServiceDefinition,
        number: int,
        store: Store,
        *,
        limit: int,
        largest: int,
        check_encoding: bool = False,
    ) -> None:
        """`limit`: the number of loaded values after which unused ones are evicted. `largest`: the limit of a value in
        bytes, from the log. `check_encoding`: see `Journal`."""
        self.check_encoding = check_encoding
        self.declarations = list(definition.states.values())
        self._store, self._limit, self._largest = store, limit, largest
        topic, self._number = definition.placement, number
        self._topic, self._partitions = topic.name, 0 if topic.internal else topic.partitions
        self.timers = TimerCells(store, self._place(TIMER))
        self.cells: dict[str, Cells] = {}
        for declaration in self.declarations:
            self._add(declaration)
        self.all: list[Cells] = [self.timers, *self.cells.values()]

    @property
    def only_plain(self) -> ValueCells | None:
        """The cells of the only state, if it has one entry per key, of an immutable type and without expiry."""
        only = next(iter(self.cells.values())) if len(self.cells) == 1 else None
        return only if isinstance(only, ValueCells) and only.plain and self.declarations[0].kind in _SINGLE else None

    def applied(self) -> None:
        """The store has the frozen changes."""
        for cells in self.all:
            cells.free_evicted()
        if sum([cells.loaded for cells in self.all]) > self._limit:
            for cells in self.all:
                cells.rotate()

    def _add(self, declaration: StateDeclaration) -> None:
        name, kind, store = declaration.name, declaration.kind, self._store
        if kind == "operator":
            place = SingleStoreKey(operator_key(name, 0))
            self.cells[name] = ValueCells(store, declaration.codec, place, largest=self._largest)
            return
        make: Callable[..., Cells] = ValueCells if kind in _SINGLE else MapCells
        if kind == "list":
            place_bounds = self._place(keyed_prefix(f"{name}.bounds"))
            bounds = ValueCells(store, _EMPTY_BOUNDS.codec, place_bounds, default=_EMPTY_BOUNDS.default)
            self.cells[f"{name}.bounds"] = bounds
            make = partial(ListCells, bounds)
        base = self._place(keyed_prefix(name))
        self.cells[name] = make(
            store, declaration.codec, base, ttl=declaration.ttl, default=declaration.default, largest=self._largest
        )

    def _place(self, prefix: bytes) -> StoreKeys:
        return StoreKeys(prefix, self._topic, self._partitions, self._number)

    def handles(self, journal: Journal) -> dict[str, StateHandle]:
        return {declaration.name: self._handle(declaration, journal) for declaration in self.declarations}

    def _handle(self, declaration: StateDeclaration, journal: Journal) -> StateHandle:
        cells = self.cells[declaration.name]
        if declaration.kind in _SINGLE:
            return _SINGLE[declaration.kind](declaration, cells, journal)
        if declaration.kind == "operator":
            return OperatorHandle(declaration.name, TaskValueHandle(declaration, cells, journal), journal)
        if not isinstance(cells, MapCells):
            raise TypeError(declaration.kind)
        if declaration.kind == "map":
            return MapHandle(declaration, cells, journal)
        items: MapHandle[bytes, Any] = MapHandle(_item_map(declaration), cells, journal)
        bounds = self.cells[f"{declaration.name}.bounds"]
        return ListHandle(items, ValueHandle(_EMPTY_BOUNDS, bounds, journal))


def _item_map(declaration: StateDeclaration) -> StateDeclaration:
    return StateDeclaration(name=declaration.name, kind="map", codec=declaration.codec, key_type=bytes)


_EMPTY_BOUNDS = StateDeclaration(name="bounds", kind="value", codec=codec_for(tuple[int, int]), default=Default((0, 0)))

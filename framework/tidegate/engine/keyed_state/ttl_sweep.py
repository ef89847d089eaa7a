"""Removes expired state from the store, in small steps.

Reads never return expired values. The sweep frees their space: about once a second, it checks the next stored entries
of each state with a TTL, and marks the expired ones for removal by the next commit. After the last entry it starts
again with the first.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.engine.keyed_state.state_backend import StateBackend
from tidegate.functions.definition import ServiceDefinition
from tidegate.state.kinds import TTL
from tidegate.state.layout import keyed_prefix, prefix_range
from tidegate.state.overlay import Cells
from tidegate.time.combined_watermark import CombinedWatermark

__all__ = ("TtlSweep",)

_PAUSE = 1.0
"""Seconds between two steps, so that an idle worker uses almost no CPU."""
_STEP = 2000
"""Entries of each state that a step checks, in about a millisecond."""


class TtlSweep:
    def __init__(
        self,
        definition: ServiceDefinition,
        backend: StateBackend,
        time: CombinedWatermark,
        busy: Callable[[bytes], bool],
    ) -> None:
        """`busy`: whether a key has a running handler, in which case the sweep skips it."""
        self._time, self._busy = time, busy
        self._states: list[tuple[Cells, tuple[bytes, bytes], TTL]] = [
            (backend.cells[name], prefix_range(keyed_prefix(name)), declaration.ttl)
            for name, declaration in definition.states.items()
            if declaration.ttl is not None
        ]
        self._last = float("-inf")

    @property
    def under_way(self) -> bool:
        """A sweep has begun and has not reached the last entry."""
        return any(cells.sweeping for cells, _, _ in self._states)

    def due(self, monotonic: float) -> bool:
        return bool(self._states) and monotonic - self._last >= _PAUSE

    def step(self, now: int, monotonic: float) -> int:
        """Returns the number of entries marked for removal."""
        self._last = monotonic
        removed = 0
        for cells, span, ttl in self._states:
            when = now if ttl.time == "processing" else self._time.age
            removed += cells.sweep(span, _STEP, when, self._busy)
        return removed

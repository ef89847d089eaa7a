"""Removes state whose time to live is over, a little at a time.

Expired values are never returned anyway. This takes them off the disk: it walks through the stored entries of each
state that has a TTL, a step about once a second, round and round, and marks the expired ones for removal with the next
commit.
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
"""Seconds between two steps: a worker that has nothing else to do should need next to no CPU."""
_STEP = 2000
"""How many entries of each state a step looks at: about a millisecond."""


class TtlSweep:
    def __init__(
        self, definition: ServiceDefinition, space: StateBackend, time: CombinedWatermark, busy: Callable[[bytes], bool]
    ) -> None:
        """`busy` keys are left alone: a handler is working on them."""
        self._time, self._busy = time, busy
        self._states: list[tuple[Cells, tuple[bytes, bytes], TTL]] = [
            (space.cells[name], prefix_range(keyed_prefix(name)), declaration.ttl)
            for name, declaration in definition.states.items()
            if declaration.ttl is not None
        ]
        self._last = float("-inf")

    @property
    def under_way(self) -> bool:
        """A walk has begun and is not at its end."""
        return any(cells.sweeping for cells, _, _ in self._states)

    def due(self, monotonic: float) -> bool:
        return bool(self._states) and monotonic - self._last >= _PAUSE

    def step(self, now: int, monotonic: float) -> int:
        """Returns how many entries are to be removed."""
        self._last = monotonic
        removed = 0
        for cells, span, ttl in self._states:
            when = now if ttl.time == "processing" else self._time.age
            removed += cells.sweep(span, _STEP, when, self._busy)
        return removed

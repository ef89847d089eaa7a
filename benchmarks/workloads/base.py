"""What the harness needs of a workload: its events, and a check that turns outputs into a verdict and a rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.workloads.events import Event

__all__ = ("Check", "Verdict", "Workload")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a peer's committed outputs say."""

    complete: bool
    """All events were handled, as far as outputs can tell."""
    problem: str
    """What is wrong with the outputs; empty: nothing."""
    outputs: int
    handled: int
    """So many events were handled, up to the last output."""
    rate: float
    """Events per second, between the two moments below."""
    start: float
    end: float
    """Seconds since 1970, by the broker's clock: the part of the run that the rate is taken from."""


class Check(Protocol):
    """Takes the committed outputs of one run, in the order of each partition."""

    def take(self, records: Iterable[Any]) -> None: ...

    def verdict(self, *, stopped: float | None) -> Verdict:
        """stopped: when the run was ended before its end; what was under way then need not be there."""


class Workload(Protocol):
    """A topic full of events, and what must come out of it."""

    @property
    def kind(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def least_outputs(self) -> int:
        """No run is at its end before it has committed so many outputs."""

    def stream(self) -> Iterator[Event]: ...

    def check(self, *, clock: bool) -> Check:
        """clock: the peer has timers by the clock."""

"""The interface of a workload: its events, and a check that derives a verdict and a rate from outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.workloads.events import Event

__all__ = ("Check", "Verdict", "Workload")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on a peer's committed outputs."""

    complete: bool
    """All events were handled, as far as outputs can tell."""
    problem: str
    """The errors of the outputs; empty: none."""
    outputs: int
    handled: int
    """The number of events handled up to the last output."""
    rate: float
    """Events per second, between the two moments below."""
    start: float
    end: float
    """Seconds since 1970, by the broker's clock: the part of the run that the rate is taken from."""


class Check(Protocol):
    """Takes the committed outputs of one run, in the order of each partition."""

    def take(self, records: Iterable[Any]) -> None: ...

    def verdict(self, *, stopped: float | None) -> Verdict:
        """stopped: the time at which the run was stopped early; outputs in progress then may be missing."""


class Workload(Protocol):
    """The events of a topic, and the expected outputs."""

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
        """The least number of outputs of a complete run."""

    def stream(self) -> Iterator[Event]: ...

    def check(self, *, clock: bool) -> Check:
        """clock: the peer has processing-time timers."""

"""The contract for observing a log from another process: read-only, without taking part in the app's work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidegate.logs.base import Reader, TopicPartition, TopicSpec

__all__ = ("Observer", "Worker")


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker of an app, as the group describes it."""

    name: str
    tasks: frozenset[TopicPartition]
    """Identified by their changelogs; empty during a rebalance."""
    address: str = ""
    """The URL of its API; empty: it serves none."""


class Observer(Protocol):
    """Topics, offsets and committed records. Writes nothing, and does not disturb the owner of the log."""

    poll_interval: float
    """Seconds between polls for changes without a notification, such as a new topic."""

    async def start(self) -> None:
        """LogUnavailableError: there is no log, or no broker answers."""

    async def stop(self) -> None: ...

    async def refresh(self) -> None:
        """Update topics and offsets."""

    async def topics(self) -> Mapping[str, TopicSpec]: ...

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    def identity(self, topic: str) -> int | None:
        """Changes when a topic was deleted and created again, so that old offsets are invalid. None: the log does not
        provide it; a reader then finds its position out of range, or the topic missing."""

    def reader(self) -> Reader: ...

    async def workers(self, app: str) -> list[Worker]:
        """The members of an app's group. Does not include the owner of an embedded log, which has no group."""

"""Reading a log beside those who work with it, without being one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidegate.logs.base import Reader, TopicPartition, TopicSpec

__all__ = ("Observer", "Worker")


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker of an app, as the others know it."""

    name: str
    tasks: frozenset[TopicPartition]
    """By their changelogs. While the workers are about to divide tasks anew, this is not known."""
    address: str = ""
    """Where its API answers, as a URL; empty: nowhere."""


class Observer(Protocol):
    """Topics, offsets and committed records. It writes nothing, and nobody notices it."""

    poll_interval: float
    """Seconds between looks at what is not told: whether a topic has come, for example."""

    async def start(self) -> None:
        """LogUnavailableError when there is no log, or nobody answers."""

    async def stop(self) -> None: ...

    async def refresh(self) -> None:
        """See what is there now."""

    async def topics(self) -> Mapping[str, TopicSpec]: ...

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    async def written_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    def identity(self, topic: str) -> int | None:
        """Another one when a topic was deleted and created again, where the log tells: offsets then mean something
        else. Where it does not, a reader finds its position out of range, or the topic gone."""

    def reader(self) -> Reader: ...

    async def workers(self, app: str) -> list[Worker]:
        """Those that work with an app together. The owner of an embedded log is not among them: ask for it there."""

"""A Kafka log for commands: a client among others."""

from __future__ import annotations

from typing import Final

from tidegate.logs.kafka.groups import group_of
from tidegate.logs.kafka.log import KafkaLog
from tidegate.logs.observer import Worker

__all__ = ("KafkaObserver",)

POLL_SECONDS: Final = 0.3


class KafkaObserver(KafkaLog):
    """The log itself: brokers serve everybody. What it shows is always of now."""

    poll_interval: float = POLL_SECONDS

    async def refresh(self) -> None:
        """There is nothing to do."""

    def identity(self, topic: str) -> int | None:
        """The protocol that is spoken here does not tell."""
        return None

    async def workers(self, app: str) -> list[Worker]:
        return await self.groups.members(group_of(app))

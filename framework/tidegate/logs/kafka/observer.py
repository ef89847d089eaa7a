"""The observer of a Kafka log, for commands."""

from __future__ import annotations

from typing import Final

from tidegate.logs.kafka.groups import group_of
from tidegate.logs.kafka.log import KafkaLog
from tidegate.logs.observer import Worker

__all__ = ("KafkaObserver",)

POLL_SECONDS: Final = 0.3


class KafkaObserver(KafkaLog):
    """A KafkaLog: brokers serve any client, and always return the current state."""

    poll_interval: float = POLL_SECONDS

    async def refresh(self) -> None:
        """Does nothing: brokers return the current state."""

    def identity(self, topic: str) -> int | None:
        """None: the protocol version in use has no topic ids."""
        return None

    async def workers(self, app: str) -> list[Worker]:
        return await self.groups.members(group_of(app))

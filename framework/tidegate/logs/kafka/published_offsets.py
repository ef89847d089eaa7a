"""Positions for Kafka's own tools: `kafka-consumer-groups --describe --group app.service`, and whatever exports lag.

They are committed outside of transactions, to groups without members, and lead nobody: a task takes its positions from
its changelog.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from tidegate.errors import LogError, LogUnavailableError
from tidegate.logs.base import TopicPartition
from tidegate.logs.kafka.groups import Groups

__all__ = ("PublishedOffsets",)

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 3600.0
"""After so long all are published again, changed or not: brokers forget what a group without members has committed."""


class PublishedOffsets:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._published: dict[str, dict[TopicPartition, int]] = {}
        self._since: dict[str, float] = {}
        self._refused: set[str] = set()

    async def publish(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """What has changed. Never raises: nothing depends on it."""
        now = time.monotonic()
        if now - self._since.setdefault(group, now) >= _AGAIN_SECONDS:
            self._since[group], self._published[group] = now, {}
        known = self._published.setdefault(group, {})
        changed = {source: at for source, at in positions.items() if known.get(source) != at}
        if not changed or group in self._refused:
            return
        try:
            await self._groups.commit(group, changed)
        except LogUnavailableError:
            return  # the next time, then
        except LogError as error:
            self._refused.add(group)
            logger.warning("positions are not published for tools that watch lag: %s", error)
            return
        known.update(changed)

"""Publishes positions for Kafka's tools: `kafka-consumer-groups --describe --group app.service`, and lag exporters.

They are committed outside of transactions, to groups without members, for information only: a task reads its positions
from its changelog.
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

_REPUBLISH_SECONDS: Final = 3600.0
"""Interval of publishing all positions, changed or not: brokers expire the positions of a group without members."""


class PublishedOffsets:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._published: dict[str, dict[TopicPartition, int]] = {}
        self._since: dict[str, float] = {}
        self._refused: set[str] = set()

    async def publish(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Publish the changed positions. Never raises: no processing depends on it."""
        now = time.monotonic()
        if now - self._since.setdefault(group, now) >= _REPUBLISH_SECONDS:
            self._since[group], self._published[group] = now, {}
        known = self._published.setdefault(group, {})
        changed = {source: at for source, at in positions.items() if known.get(source) != at}
        if not changed or group in self._refused:
            return
        try:
            await self._groups.commit(group, changed)
        except LogUnavailableError:
            return  # the next call publishes them
        except LogError as error:
            self._refused.add(group)
            logger.warning("positions are not published for lag monitoring: %s", error)
            return
        known.update(changed)

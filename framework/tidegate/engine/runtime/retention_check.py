"""Records that are older than what their topic keeps: a broker deletes them within minutes, read or not.

They are as old as the events that they come from. Whoever works through history should be told before it is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from tidegate.logs.base import TopicPartition
from tidegate.logs.records import NewRecordColumns

__all__ = ("RetentionCheck",)

logger = logging.getLogger(__name__)

_DAY_MS: Final = 24 * 3_600_000


class RetentionCheck:
    """What the tasks of a worker emit, and how long topics keep it. Says so once for each topic."""

    def __init__(self, retentions: Mapping[str, int] | None = None) -> None:
        """`retentions`: of topics that keep records by their own time, for how many ms."""
        self._kept = dict(retentions or {})

    def look_at(self, service: str, outputs: Mapping[TopicPartition, NewRecordColumns], now: int) -> None:
        """The first record of each partition is enough: time moves on slowly."""
        for target, records in outputs.items():
            kept = self._kept.get(target.topic)
            if kept is not None and records and (age := now - records[0][2]) > kept:
                del self._kept[target.topic]
                self._tell(service, target.topic, age, kept)

    def _tell(self, service: str, topic: str, age: int, kept: int) -> None:
        logger.warning(
            "%s emits to %s what is %.1f days old, by the time of its events, and the topic keeps records for %s: the "
            "broker may delete it before anybody reads it. Declare the topic with retention=0, and if it exists, set "
            "its retention.ms to -1.",
            service, topic, age / _DAY_MS, timedelta(milliseconds=kept),
        )  # fmt: skip

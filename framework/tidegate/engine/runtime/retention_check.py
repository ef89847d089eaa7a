"""Warns of emitted records that are older than the retention of their topic: a broker deletes them within minutes, read
or not.

Emitted records have the timestamps of their events, so this happens when an app processes historical data.
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
    """Checks the commits of a worker's tasks. Warns once per topic."""

    def __init__(self, retentions: Mapping[str, int] | None = None) -> None:
        """`retentions`: in ms, by topic whose retention goes by the records' timestamps."""
        self._retentions = dict(retentions or {})

    def check(self, service: str, outputs: Mapping[TopicPartition, NewRecordColumns], now: int) -> None:
        """Looks at the first record of each partition only: event time advances slowly."""
        for target, records in outputs.items():
            retention = self._retentions.get(target.topic)
            if retention is not None and records and (age := now - records[0][2]) > retention:
                del self._retentions[target.topic]
                self._warn(service, target.topic, age, retention)

    def _warn(self, service: str, topic: str, age: int, retention: int) -> None:
        logger.warning(
            "%s emits records to %s that are %.1f days old by their event time, and the topic keeps records for %s: "
            "the broker may delete them before they are read. Declare the topic with retention=0 and, if it exists, "
            "set its retention.ms to -1.",
            service, topic, age / _DAY_MS, timedelta(milliseconds=retention),
        )  # fmt: skip

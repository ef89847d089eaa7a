"""What a task tells those downstream of its time, and when."""

from __future__ import annotations

from tidegate.time.clock import MIN_TIME
from tidegate.time.combined_watermark import Progress

__all__ = ("WatermarkPublisher",)


class WatermarkPublisher:
    """About once an interval, if anything has changed; at once when it wakes up, and for the last time."""

    def __init__(self, task: str, interval: float, monotonic: float) -> None:
        self._task, self._interval = task, interval
        self._told: Progress | None = None
        self._told_at = monotonic - interval

    def due(self, watermark: int, monotonic: float, *, idle: bool, last: bool) -> bool:
        """`watermark`: what is over for those downstream. `last`: there is nothing to come."""
        progress, told = self._progress(watermark, idle), self._told
        if progress == told or (told is None and watermark == MIN_TIME and not idle):
            return False
        awake = told is not None and told.idle and not idle
        return awake or last or monotonic - self._told_at >= self._interval

    def tell(self, watermark: int, monotonic: float, *, idle: bool) -> Progress:
        self._told, self._told_at = self._progress(watermark, idle), monotonic
        return self._told

    def _progress(self, watermark: int, idle: bool) -> Progress:
        return Progress(sender=self._task, watermark=watermark, idle=idle, sent={})

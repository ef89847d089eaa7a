"""Publishes a task's progress, its watermark and idleness, to the tasks downstream."""

from __future__ import annotations

from tidegate.time.clock import MIN_TIME
from tidegate.time.combined_watermark import Progress

__all__ = ("WatermarkPublisher",)


class WatermarkPublisher:
    """Progress is due once an interval if it has changed, and at once when the task is no longer idle or at its end."""

    def __init__(self, task: str, interval: float, monotonic: float) -> None:
        self._task, self._interval = task, interval
        self._published: Progress | None = None
        self._published_at = monotonic - interval

    def due(self, watermark: int, monotonic: float, *, idle: bool, last: bool) -> bool:
        """`watermark`: what the tasks downstream may count on. `last`: the input has ended."""
        progress, published = self._progress(watermark, idle), self._published
        if progress == published or (published is None and watermark == MIN_TIME and not idle):
            return False
        awake = published is not None and published.idle and not idle
        return awake or last or monotonic - self._published_at >= self._interval

    def publish(self, watermark: int, monotonic: float, *, idle: bool) -> Progress:
        self._published, self._published_at = self._progress(watermark, idle), monotonic
        return self._published

    def _progress(self, watermark: int, idle: bool) -> Progress:
        return Progress(sender=self._task, watermark=watermark, idle=idle, sent={})

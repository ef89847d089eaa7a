"""How checkpoints are doing, as every worker hears it on the control topic: for health, metrics and people."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge

from tidegate.engine.formats.barrier import CheckpointRecord

__all__ = ("CheckpointMetrics", "CheckpointStatus")


@dataclass(kw_only=True)
class CheckpointStatus:
    under_way: CheckpointRecord | None = None
    last_complete: CheckpointRecord | None = None
    last_failed: CheckpointRecord | None = None
    failures: int = 0
    """In a row."""

    @property
    def healthy(self) -> bool:
        """The last one that ended was complete, or there was none yet."""
        return self.failures == 0

    def hear(self, record: CheckpointRecord) -> None:
        self.under_way = record if record.state == "begun" else None
        if record.state == "complete":
            self.last_complete, self.failures = record, 0
        elif record.state == "aborted":
            self.last_failed, self.failures = record, self.failures + 1


class CheckpointMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"tidegate_checkpoint_{name}", text, registry=registry)

        self._ended = Counter(
            "tidegate_checkpoints", "Checkpoints and savepoints that ended", ("outcome",), registry=registry
        )
        for outcome in ("complete", "aborted"):
            self._ended.labels(outcome)
        self._failures = gauge("failures", "How many were given up since the last complete one")
        self._epoch = gauge("epoch", "Number of the last complete one")
        self._completed = gauge("completed_seconds", "When the last one was complete, in seconds since 1970")
        self._duration = gauge("duration_seconds", "How long the last complete one took")
        self._size = gauge("bytes", "How large the last complete one is")
        self._uploaded = gauge("uploaded_bytes", "How much was uploaded for the last complete one")

    def hear(self, record: CheckpointRecord, status: CheckpointStatus) -> None:
        self._failures.set(status.failures)
        if record.state == "begun":
            return
        self._ended.labels(record.state).inc()
        if record.state == "complete":
            self._epoch.set(record.epoch)
            self._completed.set(record.ended_ms / 1000)
            self._duration.set((record.ended_ms - record.started_ms) / 1000)
            self._size.set(record.size)
            self._uploaded.set(record.uploaded)

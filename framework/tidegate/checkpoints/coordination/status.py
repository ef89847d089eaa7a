"""The status of checkpoints as each worker reads it from the control topic, for health checks, metrics and commands."""

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
    """Consecutive ones."""

    @property
    def healthy(self) -> bool:
        """The last checkpoint that ended was complete, or none has ended yet."""
        return self.failures == 0

    def update(self, record: CheckpointRecord) -> None:
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
        self._failures = gauge("failures", "Checkpoints aborted since the last complete one")
        self._epoch = gauge("epoch", "Number of the last complete checkpoint")
        self._completed = gauge("completed_seconds", "When the last checkpoint completed, in seconds since 1970")
        self._duration = gauge("duration_seconds", "Duration of the last complete checkpoint")
        self._size = gauge("bytes", "Size of the last complete checkpoint")
        self._uploaded = gauge("uploaded_bytes", "Bytes uploaded for the last complete checkpoint")

    def update(self, record: CheckpointRecord, status: CheckpointStatus) -> None:
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

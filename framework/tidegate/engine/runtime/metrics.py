"""What a worker counts and measures, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ("Metrics", "TaskMetrics")

_LABELS = ("service", "task")
_SLICES = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.5)
_COMMITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """All of a worker's, in a registry of its own, so that several apps in a process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.slices = Histogram(
            "tidegate_slice_cpu_seconds",
            "CPU time for which a slice of handlers held the event loop",
            buckets=_SLICES,
            registry=registry,
        )
        self.handled = Counter("tidegate_handled", "Records and timers that were handled", _LABELS, registry=registry)
        self.emitted = Counter("tidegate_emitted", "Records that were sent on", _LABELS, registry=registry)
        self.commits = Counter("tidegate_commits", "Transactions", _LABELS, registry=registry)
        self.commit_seconds = Histogram(
            "tidegate_commit_seconds",
            "From freezing a commit to the local store having it",
            _LABELS,
            buckets=_COMMITS,
            registry=registry,
        )
        self.changes = Counter("tidegate_state_changes", "Changelog records written", _LABELS, registry=registry)
        self.retries = Counter("tidegate_retries", "Handlers that failed and are repeated", _LABELS, registry=registry)
        self.skipped = Counter("tidegate_skipped", "Records given up by SKIP", _LABELS, registry=registry)
        self.dead_letters = Counter("tidegate_dead_letters", "Records given up", _LABELS, registry=registry)
        self.expired = Counter("tidegate_expired", "State entries removed by their TTL", _LABELS, registry=registry)
        self.lost = Counter("tidegate_lost", "Input offsets that retention removed unread", _LABELS, registry=registry)
        self.watermark = Gauge("tidegate_watermark_ms", "A task's event time", _LABELS, registry=registry)
        self.lag = Gauge("tidegate_lag", "Input offsets that are not handled yet", _LABELS, registry=registry)
        self.stalled = Gauge("tidegate_stalled", "1: there is input that does not come", _LABELS, registry=registry)
        self.waiting = Gauge("tidegate_waiting_handlers", "Unfinished records and timers", _LABELS, registry=registry)

    def of(self, service: str, number: int) -> TaskMetrics:
        return TaskMetrics(self, service, number)


class TaskMetrics:
    """Those of one task, with the labels filled in."""

    def __init__(self, metrics: Metrics, service: str, number: int) -> None:
        labels = (service, str(number))
        self.handled = metrics.handled.labels(*labels)
        self.emitted = metrics.emitted.labels(*labels)
        self.commits = metrics.commits.labels(*labels)
        self.commit_seconds = metrics.commit_seconds.labels(*labels)
        self.changes = metrics.changes.labels(*labels)
        self.retries = metrics.retries.labels(*labels)
        self.skipped = metrics.skipped.labels(*labels)
        self.dead_letters = metrics.dead_letters.labels(*labels)
        self.expired = metrics.expired.labels(*labels)
        self.lost = metrics.lost.labels(*labels)
        self.watermark = metrics.watermark.labels(*labels)
        self.lag = metrics.lag.labels(*labels)
        self.stalled = metrics.stalled.labels(*labels)
        self.waiting = metrics.waiting.labels(*labels)

"""The Prometheus metrics of a worker and its tasks."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ("Metrics", "TaskMetrics")

_LABELS = ("service", "task")
_SLICES = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.5)
_COMMITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """In a registry of its own, so that several apps in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.slices = Histogram(
            "tidegate_slice_cpu_seconds",
            "CPU time of a slice of handlers in the event loop",
            buckets=_SLICES,
            registry=registry,
        )
        self.handled = Counter("tidegate_handled", "Processed records and timers", _LABELS, registry=registry)
        self.emitted = Counter("tidegate_emitted", "Emitted records", _LABELS, registry=registry)
        self.commits = Counter("tidegate_commits", "Transactions", _LABELS, registry=registry)
        self.commit_seconds = Histogram(
            "tidegate_commit_seconds",
            "Duration of a commit, from its freeze to the local store",
            _LABELS,
            buckets=_COMMITS,
            registry=registry,
        )
        self.changes = Counter("tidegate_state_changes", "Changelog records written", _LABELS, registry=registry)
        self.retries = Counter("tidegate_retries", "Failed handlers that are retried", _LABELS, registry=registry)
        self.skipped = Counter("tidegate_skipped", "Records skipped by the error policy", _LABELS, registry=registry)
        self.dead_letters = Counter("tidegate_dead_letters", "Records sent to dead letters", _LABELS, registry=registry)
        self.expired = Counter("tidegate_expired", "State entries removed by their TTL", _LABELS, registry=registry)
        self.lost = Counter("tidegate_lost", "Input offsets that retention removed unread", _LABELS, registry=registry)
        self.watermark = Gauge("tidegate_watermark_ms", "A task's event time", _LABELS, registry=registry)
        self.lag = Gauge("tidegate_lag", "Input offsets that are not processed yet", _LABELS, registry=registry)
        self.stalled = Gauge(
            "tidegate_stalled", "1: an input with records does not advance", _LABELS, registry=registry
        )
        self.waiting = Gauge("tidegate_waiting_handlers", "Unfinished records and timers", _LABELS, registry=registry)

    def of(self, service: str, number: int) -> TaskMetrics:
        return TaskMetrics(self, service, number)


class TaskMetrics:
    """The metrics of one task, with its labels."""

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

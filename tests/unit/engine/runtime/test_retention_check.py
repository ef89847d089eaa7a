"""Emitted records that are older than their topic's retention: a warning, once per topic."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate import App, Context, EventTime
from tidegate.testing import AppHarness
from tidegate.testing.memory_log import MemoryLog

DAY_MS = 24 * 3_600_000


def make_app(**options: Any) -> App:
    app = App("history", partitions=2, time=EventTime("at"))
    events = app.topic("events", value_type=dict, key="id")
    late, recent = app.topic("late", value_type=dict, **options), app.topic("kept", value_type=dict, retention=0)

    @app.process(events, to=[late, recent])
    async def pass_on(ctx: Context, event: dict[str, int]) -> None:
        ctx.emit(event, to=late)
        ctx.emit(event, to=recent)

    return app


def send(harness: AppHarness, *, days: float) -> None:
    now = harness.clock.now()
    harness.send_many("events", [{"id": n, "at": round(now - days * DAY_MS)} for n in range(10)])


@pytest.fixture(autouse=True)
def _as_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLog, "retention_by_timestamp", True)


def test_the_warning_is_logged_once_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    with AppHarness(make_app()) as harness:
        send(harness, days=30)
        send(harness, days=30)
    (warning,) = [record.getMessage() for record in caplog.records if "days old" in record.getMessage()]
    assert "pass_on emits records to late that are 30.0 days old" in warning
    assert "for 7 days" in warning
    assert "retention=0" in warning


@pytest.mark.parametrize(("days", "options"), [(6.9, {}), (30, {"retention": 31 * 86_400}), (30, {"retention": 0})])
def test_sufficient_retention_gives_no_warning(
    days: float, options: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    with AppHarness(make_app(**options)) as harness:
        send(harness, days=days)
    assert "days old" not in caplog.text


def test_where_it_counts_when_records_were_appended_their_own_time_does_not_matter(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryLog, "retention_by_timestamp", False)
    with AppHarness(make_app()) as harness:
        send(harness, days=30)
    assert "days old" not in caplog.text

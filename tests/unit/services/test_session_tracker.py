"""The session tracker: what comes without a pause is one session, by event time or by the clock."""

from __future__ import annotations

import pytest

from tidegate import App, Monotonic
from tidegate.testing import AppHarness
from tidegate_services import Close, Current, Session, SessionTracker, Touch

T = 1_700_000_000_000
MINUTE = 60_000


def test_sessions_of_a_topic_end_by_event_time() -> None:
    app = App("pages", watermark=Monotonic())
    pages = app.topic("pages", value_type=dict, key="user")
    sessions = app.topic("sessions", value_type=Session)
    tracker = SessionTracker(app, gap=30 * 60, topic=pages, to=sessions)
    with AppHarness(app) as harness:
        for minutes in (0, 20, 40):
            harness.send(pages, {"user": "ann"}, timestamp=T + minutes * MINUTE)
        assert harness.outputs(sessions) == []
        assert harness.ask(tracker.service, "ann", Current()).events == 3
        harness.send(pages, {"user": "bob"}, timestamp=T + 71 * MINUTE)
        assert harness.outputs(sessions) == [Session("ann", T, T + 40 * MINUTE, 3)]
        assert harness.ask(tracker.service, "ann", Current()) is None


def test_the_order_of_events_does_not_change_the_session() -> None:
    app = App("disorder")
    pages = app.topic("pages", value_type=dict, key="user")
    sessions = app.topic("sessions", value_type=Session)
    SessionTracker(app, gap=60, topic=pages, to=sessions)
    with AppHarness(app) as harness:
        for seconds in (30, 0, 50, 20):
            harness.send(pages, {"user": "ann"}, timestamp=T + seconds * 1000)
        harness.finish()
        assert harness.outputs(sessions) == [Session("ann", T, T + 50_000, 4)]


def test_sessions_of_messages_end_by_the_clock_or_when_they_are_closed() -> None:
    app = App("touches")
    sessions = app.topic("sessions", value_type=Session)
    tracker = SessionTracker(app, gap=60, to=sessions)
    with AppHarness(app) as harness:
        harness.tell(tracker.service, "ann", Touch())
        harness.advance(seconds=40)
        assert harness.ask(tracker.service, "ann", Touch()).events == 2
        harness.restart()
        harness.advance(seconds=59)
        assert harness.outputs(sessions) == []
        harness.advance(seconds=1)
        (ended,) = harness.outputs(sessions)
        assert (ended.events, ended.last - ended.started) == (2, 40_000)

        harness.tell(tracker.service, "ann", Touch())
        assert harness.ask(tracker.service, "ann", Close()).events == 1
        assert harness.ask(tracker.service, "ann", Close()) is None
        assert len(harness.outputs(sessions)) == 1
        assert harness.timers(tracker.service, "ann") == []


def test_an_empty_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="gap must be more than 0"):
        SessionTracker(App("refused"), gap=0)

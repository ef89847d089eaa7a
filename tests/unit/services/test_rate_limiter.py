"""The rate limiter: as many as flow in and no more, per key, by the requests' own time."""

from __future__ import annotations

import random

import pytest

from tidegate import App, RejectedError
from tidegate.testing import AppHarness
from tidegate_services import Acquire, Decision, RateLimiter

T = 1_700_000_000_000


def test_a_burst_is_allowed_and_then_the_refill_rate() -> None:
    app = App("limits")
    limiter = RateLimiter(app, rate=2, burst=3)
    with AppHarness(app) as harness:
        decisions = [harness.ask(limiter.service, "ann", Acquire(), timestamp=T) for _ in range(4)]
        assert [decision.allowed for decision in decisions] == [True, True, True, False]
        assert decisions[-1] == Decision(allowed=False, remaining=0.0, retry_after=0.5)
        assert harness.ask(limiter.service, "bob", Acquire(), timestamp=T).allowed
        assert not harness.ask(limiter.service, "ann", Acquire(), timestamp=T + 499).allowed
        assert harness.ask(limiter.service, "ann", Acquire(), timestamp=T + 500).allowed
        assert harness.ask(limiter.service, "ann", Acquire(3), timestamp=T + 2000).allowed


def test_no_interval_exceeds_the_burst_plus_the_refill() -> None:
    app, rate, burst = App("bounds"), 5.0, 7.0
    limiter = RateLimiter(app, rate=rate, burst=burst)
    dice, now = random.Random(7), T
    allowed: list[int] = []
    with AppHarness(app) as harness:
        for _ in range(300):
            now += dice.choice((0, 10, 100, 700))
            if harness.ask(limiter.service, "k", Acquire(), timestamp=now).allowed:
                allowed.append(now)
    for i, start in enumerate(allowed):
        for j in range(i, len(allowed)):
            assert j - i + 1 <= burst + rate * (allowed[j] - start) / 1000 + 1e-6


def test_a_late_request_takes_tokens_and_adds_none() -> None:
    app = App("late")
    limiter = RateLimiter(app, rate=1, burst=2)
    with AppHarness(app) as harness:
        harness.ask(limiter.service, "k", Acquire(2), timestamp=T + 5000)
        assert not harness.ask(limiter.service, "k", Acquire(), timestamp=T).allowed
        assert not harness.ask(limiter.service, "k", Acquire(), timestamp=T + 5999).allowed
        assert harness.ask(limiter.service, "k", Acquire(), timestamp=T + 6000).allowed


def test_a_look_takes_nothing_and_a_cost_that_never_fits_is_rejected() -> None:
    app = App("costs")
    limiter = RateLimiter(app, rate=10, burst=5)
    with AppHarness(app) as harness:
        assert harness.ask(limiter.service, "k", Acquire(0), timestamp=T).remaining == 5
        for cost in (6, -1):
            with pytest.raises(RejectedError, match="0 to 5 tokens"):
                harness.ask(limiter.service, "k", Acquire(cost), timestamp=T)
        assert harness.ask(limiter.service, "k", Acquire(0), timestamp=T).remaining == 5


def test_a_bucket_that_is_full_again_is_forgotten() -> None:
    app = App("forgets")
    limiter = RateLimiter(app, rate=1, burst=10)
    with AppHarness(app) as harness:
        harness.ask(limiter.service, "k", Acquire(10))
        assert harness.state(limiter.service, "bucket", "k") is not None
        harness.advance(seconds=11)
        assert harness.state(limiter.service, "bucket", "k") is None


def test_a_topic_is_divided_by_the_limit_and_the_bucket_can_still_be_asked() -> None:
    app = App("topics")
    calls = app.topic("calls", value_type=dict, key="user")
    passed, refused = app.topic("passed", value_type=dict), app.topic("refused", value_type=dict)
    limiter = RateLimiter(app, rate=1, burst=2, topic=calls, to=passed, otherwise=refused, name="calls_limit")
    with AppHarness(app) as harness:
        for n in range(4):
            harness.send(calls, {"user": "ann", "n": n}, timestamp=T + n)
        assert [call["n"] for call in harness.outputs(passed)] == [0, 1]
        assert [call["n"] for call in harness.outputs(refused)] == [2, 3]
        assert not harness.ask(limiter.service, "ann", Acquire(), timestamp=T + 10).allowed


def test_invalid_arguments_are_refused() -> None:
    app = App("refused")
    topic = app.topic("topic")
    with pytest.raises(ValueError, match="rate must be more than 0"):
        RateLimiter(app, rate=0)
    with pytest.raises(ValueError, match="burst must be more than 0"):
        RateLimiter(app, rate=1, burst=0)
    with pytest.raises(ValueError, match="give topic="):
        RateLimiter(app, rate=1, to=topic)

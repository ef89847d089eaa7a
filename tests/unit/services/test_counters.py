"""Counters and their boards: exact totals, and the highest of them in order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tidegate import App, RejectedError
from tidegate.testing import AppHarness
from tidegate_services import Count, Counters, Increment, Standing, Top


def test_a_board_shows_the_highest_first() -> None:
    app = App("likes")
    counters = Counters(app, every=1)
    with AppHarness(app) as harness:
        assert harness.ask(counters.service, "ann", Increment()) == 1
        assert harness.ask(counters.service, "ann", Increment(2)) == 3
        harness.tell(counters.service, "bob", Increment(5))
        assert harness.ask(counters.boards, "all", Top()) == []
        harness.advance(seconds=1)
        assert harness.ask(counters.boards, "all", Top()) == [Standing("bob", 5), Standing("ann", 3)]
        assert harness.ask(counters.boards, "all", Top(1)) == [Standing("bob", 5)]
        assert harness.ask(counters.service, "ann", Count()) == 3
        assert harness.ask(counters.service, "nobody", Count()) == 0


def test_a_busy_counter_updates_its_leaderboard_periodically() -> None:
    app = App("busy")
    counters = Counters(app, every=10)
    with AppHarness(app) as harness:
        for _ in range(100):
            harness.tell(counters.service, "ann", Increment(), settle=False)
        harness.settle()
        harness.advance(seconds=10)
        assert harness.told(counters.boards) == [("all", Standing("ann", 100))]
        harness.advance(seconds=60)
        assert len(harness.told(counters.boards)) == 1


def test_a_small_leaderboard_is_exact_for_any_input() -> None:
    app = App("exact")
    events = app.topic("events", value_type=dict, key="who")
    counters = Counters(app, topic=events, by="n", board="game", size=5, every=1)
    dice = random.Random(11)
    totals: dict[str, Counter[str]] = {"chess": Counter(), "go": Counter()}
    with AppHarness(app, partitions=3) as harness:
        for _ in range(15):
            batch: list[dict[str, Any]] = [
                {"who": f"p{dice.randrange(30)}", "game": dice.choice(("chess", "go")), "n": dice.randrange(1, 50)}
                for _ in range(40)
            ]
            for event in batch:
                totals[event["game"]][event["who"]] += event["n"]
            harness.send_many(events, batch)
            if dice.random() < 0.3:
                harness.crash()
            harness.advance(seconds=1)
            for board, total in totals.items():
                shown = harness.ask(counters.boards, board, Top(5))
                assert sorted((s.count for s in shown), reverse=True) == [s.count for s in shown]
                assert [s.count for s in shown] == [count for _, count in total.most_common(5)]
                assert all(total[s.name] == s.count for s in shown)


def test_counters_only_grow() -> None:
    app = App("grow")
    counters = Counters(app)
    with AppHarness(app) as harness:
        for by in (0, -1):
            with pytest.raises(RejectedError, match="only grow"):
                harness.ask(counters.service, "ann", Increment(by))
        with pytest.raises(RejectedError, match="limit must be at least 1"):
            harness.ask(counters.boards, "all", Top(0))
    with pytest.raises(ValueError, match="size must be at least 1"):
        Counters(app, name="none", size=0)

"""Services that ask for at_least_once: outputs leave before the commit, and are sent again after a crash."""

from __future__ import annotations

from typing import Annotated, Any

from tidegate import App, Context, Default, Topic, ValueState
from tidegate.testing import AppHarness


def counting() -> tuple[App, Topic[Any], Topic[Any]]:
    app = App("eager", partitions=1)
    words: Topic[Any] = app.topic("words", value_type=str)
    counts: Topic[Any] = app.topic("counts", value_type=int)

    @app.process(words, to=counts, guarantee="at_least_once")
    async def count(ctx: Context, word: str, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.value += 1
        ctx.emit(seen.value)

    return app, words, counts


def test_at_least_once_outputs_are_sent_before_the_commit() -> None:
    app, words, counts = counting()
    with AppHarness(app) as harness:
        harness.send(words, "tide", key="tide", settle=False)
        harness.settle(commit=False)

        assert harness.outputs(counts) == [1]
        assert harness.state("count", "seen", "tide") is None


def test_after_a_crash_outputs_are_sent_again_and_state_is_exact() -> None:
    app, words, counts = counting()
    with AppHarness(app) as harness:
        harness.send(words, "tide", key="tide", settle=False)
        harness.settle(commit=False)
        harness.crash()
        harness.settle()

        assert harness.outputs(counts) == [1, 1]
        assert harness.state("count", "seen", "tide") == 1


def test_the_order_of_outputs_is_kept() -> None:
    app, words, counts = counting()
    with AppHarness(app) as harness:
        harness.send_many(words, ["tide"] * 500, key=str)

        assert harness.outputs(counts) == list(range(1, 501))

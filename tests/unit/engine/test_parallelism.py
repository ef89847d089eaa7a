"""parallelism=N: as many tasks as asked for, whatever the input topics have."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from tidegate import App, Context, MapState, ValueState
from tidegate.errors import DefinitionError, MissingKeyError, PlacementError, ServiceFailedError
from tidegate.keys import encode_key, key_group, task_of_group
from tidegate.testing import AppHarness


class Click(msgspec.Struct, frozen=True):
    user: str
    n: int


def clicks_app(parallelism: int | None, *, partitions: int = 3, key_by: str | None = None) -> tuple[App, Any, Any]:
    app = App("app")
    clicks = app.topic("clicks", value_type=Click, key="user", partitions=partitions)

    @app.process(clicks, parallelism=parallelism, key_by=key_by)
    async def count(ctx: Context, click: Click, seen: MapState[int, int], order: ValueState[int | None]) -> None:
        assert click.n > (order.value or -1)
        order.value = click.n
        seen[click.n] = ctx.task.number

    return app, clicks, count


@pytest.mark.parametrize("parallelism", [1, 2, 5, 16, 128])
def test_a_service_has_as_many_tasks_as_it_asks_for_and_keys_lie_by_their_groups(parallelism: int) -> None:
    app, clicks, count = clicks_app(parallelism)
    with AppHarness(app) as harness:
        assert sum(task.definition.name == "count" for task in harness.engine.tasks.values()) == parallelism
        harness.send_many(clicks, [Click(f"u{n % 40}", n) for n in range(400)])
        for user in range(40):
            task = task_of_group(key_group(encode_key(f"u{user}")), parallelism)
            assert harness.state(count, "seen", f"u{user}") == dict.fromkeys(range(user, 400, 40), task)


def test_the_outside_topic_keeps_its_partitions() -> None:
    app, *_ = clicks_app(7)
    with AppHarness(app) as harness:
        topics = harness.run(harness.log.topics())
        assert topics["clicks"].partitions == 3
        assert topics["app.count.clicks.by-key"].partitions == 7
        assert topics["app.count.changelog"].partitions == 7


def test_records_that_another_partitioner_has_placed_find_their_actor() -> None:
    app, clicks, count = clicks_app(4)
    with AppHarness(app) as harness:
        harness.send_raw(clicks, key=b"ann", value=b'{"user":"ann","n":1}', partition=0)
        harness.send_raw(clicks, key=b"ann", value=b'{"user":"ann","n":2}', partition=0)
        assert set(harness.state(count, "seen", "ann")) == {1, 2}


def test_a_record_without_a_key_gives_a_clear_error() -> None:
    app, clicks, _ = clicks_app(4)
    with AppHarness(app) as harness, pytest.raises(ServiceFailedError) as caught:
        harness.send_raw(clicks, key=None, value=b'{"user":"ann","n":1}')
    assert isinstance(caught.value.cause, MissingKeyError)


def test_with_key_by_too() -> None:
    app, clicks, count = clicks_app(5, key_by="user")
    with AppHarness(app) as harness:
        harness.send_raw(clicks, key=None, value=b'{"user":"ann","n":1}')
        assert set(harness.state(count, "seen", "ann")) == {1}
        assert harness.run(harness.log.topics())["app.count.changelog"].partitions == 5


def test_a_run_keeps_its_initial_parallelism_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    app, clicks, count = clicks_app(4)
    with AppHarness(app) as harness, caplog.at_level(logging.WARNING):
        harness.send_many(clicks, [Click(f"u{n % 40}", n) for n in range(40)])
        harness.upgrade(clicks_app(9)[0])
        harness.send_many(clicks, [Click(f"u{n % 40}", n) for n in range(40, 80)])
        for user in range(40):
            assert set(harness.state(count, "seen", f"u{user}")) == {user, user + 40}
        assert sum(task.definition.name == "count" for task in harness.engine.tasks.values()) == 4
    assert "4 tasks" in caplog.text
    assert "--partitions 9" in caplog.text


def test_a_service_that_read_its_input_directly_keeps_its_partitioning_while_it_has_state() -> None:
    app, clicks, _ = clicks_app(None)
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann", 1))
        with pytest.raises(PlacementError, match="savepoint restore"):
            harness.upgrade(clicks_app(3)[0])
        harness.upgrade(app)


@pytest.mark.parametrize("parallelism", [0, -1, 129])
def test_an_impossible_parallelism_is_refused_where_it_is_written(parallelism: int) -> None:
    with pytest.raises(DefinitionError, match="from 1 to 128"):
        clicks_app(parallelism)

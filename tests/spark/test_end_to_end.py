"""From likes to tables on a real broker, with workers and Spark drivers killed on the way: the tables are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.tinder_match.app import app
from examples.tinder_match.pipeline import reading
from examples.tinder_match.pipeline.report import report
from tests.spark.world import Expectation, World, compare, rows_of
from tidegate_app.kafka import Broker
from tidegate_spark import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world(tmp_path: Path, private_kafka: Callable[[], Broker]) -> Iterator[World]:
    made = World(tmp_path, private_kafka().url)
    yield made
    made.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)], ids=lambda n: f"rounds-{n}")
def test_tables_are_exact_despite_killed_workers_and_drivers(spark: SparkSession, world: World, rounds: int) -> None:
    world.start_worker()
    world.send(1600)
    world.start_driver()
    for number in range(rounds):
        before = world.files("matches")
        world.wait("a batch in the tables", partial(_grown, world, before))
        world.send(800)
        world.kill("worker")
        world.send(800)
        world.kill("driver", alone=number % 2 == 1)
        world.start_worker()
        world.send(800)
        world.start_driver()
    world.kill("driver")
    world.wait_for_matches()
    world.run_jobs()

    assert world.kills == {"worker": rounds, "driver": rounds + 1}
    expectation = Expectation(world.likes)
    assert len(expectation.matches) > 100 * rounds
    compare(expectation, lambda name: rows_of(world.tables / name))
    compare(expectation, lambda name: _by_spark(spark, world, name))
    assert rows_of(world.tables / "quarantine_collect") == []
    check_reading(spark, world, expectation)
    page = report(world.tables)
    assert f"<b>{len(expectation.matches):,}</b><span>matches</span>" in page
    assert "http" not in page  # nothing from elsewhere


def check_reading(spark: SparkSession, world: World, expectation: Expectation) -> None:
    """The code that the documentation shows."""
    wanted = 2 * len(expectation.matches)
    world.wait(
        "all notices", lambda: sum(row["count"] for row in reading.popular(spark, world.flags).collect()) == wanted
    )
    assert reading.newest(spark, world.flags).count() == 10
    assert reading.longest(spark, world.flags).count() == 10
    assert reading.talkative(spark, world.flags).first().likes > 1


def _grown(world: World, before: int) -> bool:
    return world.files("matches") > before


def _by_spark(spark: SparkSession, world: World, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in read_table(spark, app, name, flags=world.flags).collect()]

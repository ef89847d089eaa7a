"""From likes to tables on a real broker, with workers and Spark drivers killed on the way: the tables are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from examples.tinder_match.app import app
from examples.tinder_match.pipeline.report import report
from tests.spark.world import Expectation, World
from tidegate_app.kafka import Broker
from tidegate_spark import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE, HOUR = 60_000, 3_600_000
Rows = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def world(tmp_path: Path, private_kafka: Callable[[], Broker]) -> Iterator[World]:
    made = World(tmp_path, private_kafka().url)
    yield made
    made.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)], ids=lambda n: f"rounds-{n}")
def test_the_tables_are_exact_although_workers_and_drivers_are_killed(
    spark: SparkSession, world: World, rounds: int
) -> None:
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
    compare(expectation, lambda name: _by_pyarrow(world, name))
    compare(expectation, lambda name: _by_spark(spark, world, name))
    assert _by_pyarrow(world, "quarantine_collect") == []
    page = report(world.tables)
    assert f"<b>{len(expectation.matches):,}</b><span>matches</span>" in page


def _grown(world: World, before: int) -> bool:
    return world.files("matches") > before


def compare(expectation: Expectation, rows: Rows) -> None:
    """Each table with what follows from the likes: nothing is missing, nothing is there twice."""
    assert Counter((row["id"], row["at"]) for row in rows("likes")) == Counter((i.id, i.at) for i in expectation.likes)
    assert Counter((row["pair"], row["first"], row["second"], row["at"]) for row in rows("matches")) == Counter(
        (match.pair, match.first, match.second, match.at) for match in expectation.matches
    )
    for table, column, unit in (("matches_per_minute", "minute", MINUTE), ("matches_per_hour", "hour", HOUR)):
        found = rows(table)
        assert {_ms(row[column]): row["matches"] for row in found} == expectation.per(unit)
        assert len(found) == len(expectation.per(unit))
    assert {row["pair"]: row["waited_ms"] for row in rows("like_to_match")} == expectation.waits()
    assert {row["person"]: (row["liked"], row["matches"]) for row in rows("people")} == expectation.people()
    assert {str(row["day"]): (row["likes"], row["matches"]) for row in rows("days")} == expectation.days()


def _ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)


def _by_pyarrow(world: World, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.dataset(world.tables / name, partitioning="hive").to_table().to_pylist()
    return found


def _by_spark(spark: SparkSession, world: World, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in read_table(spark, app, name, flags=world.flags).collect()]

"""The commands, in the session that the tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result

from examples.tinder_match.app import app, likes
from examples.tinder_match.events import DAY
from examples.tinder_match.fold import expected
from examples.tinder_match.generator import LikeStream, Origin
from tests.spark.support import ran, tidegate
from tidegate.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "examples.tinder_match.pipeline"


def lines(done: Result) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_pipeline_from_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    stream = LikeStream(5, Origin())
    sent = [like for _ in range(2) for like in stream.next(250, DAY)]
    ran(app, {"data": tmp_path}, (likes, sent))
    found = [match for matches in expected(sent).matches.values() for match in matches]
    where = ("--data", tmp_path)

    told = tidegate("pipeline", "run", PIPELINE, "collect", "--once", *where)
    assert "collect → matches: batch 0" in told.stderr
    status = {
        row["output"]: row for row in json.loads(tidegate("pipeline", "status", PIPELINE, "--json", *where).stdout)
    }
    assert status["matches"]["behind"] == 0
    assert status["matches_per_hour"]["batches"] == 0

    answer = tidegate("sql", PIPELINE, "select count(*) as n, max(second) as s from matches", "--json", *where)
    assert lines(answer) == [{"n": len(found), "s": max(match.second for match in found)}]
    table = tidegate("sql", PIPELINE, "select count(*) as n from matches_table", *where)
    assert str(len(found)) in table.stdout

    query = "select window.start as day, count(*) as n from matches group by window(event_time, '1 day')"
    tidegate("sql", PIPELINE, query, "--stream", "--to", "per_day", "--key", "day", "--once", *where)
    days = lines(tidegate("sql", PIPELINE, "select sum(n) as n from per_day", "--json", *where))
    assert days == [{"n": len(found)}]


def test_jobs_are_listed_without_a_session() -> None:
    rows = json.loads(tidegate("pipeline", "list", PIPELINE, "--json").stdout)

    assert [(row["job"], row["kind"], row["reads"], row["writes"]) for row in rows] == [
        ("collect", "stream", ["likes", "matches"], ["likes", "matches"]),
        ("people", "batch", ["likes", "matches"], ["like_to_match", "people", "days"]),
        ("windows", "stream", ["matches"], ["matches_per_minute", "matches_per_hour"]),
    ]


def test_errors_are_plain_messages(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="known: collect, people, windows"):
        tidegate("pipeline", "run", PIPELINE, "colect", "--once")
    with pytest.raises(UsageError, match="defines no jobs"):
        tidegate("pipeline", "list", "examples.tinder_match:app")
    with pytest.raises(UsageError, match="belong together"):
        tidegate("sql", PIPELINE, "select 1", "--stream")
    with pytest.raises(UsageError, match="PARSE_SYNTAX_ERROR"):
        tidegate("sql", PIPELINE, "selec 1", "--data", tmp_path)

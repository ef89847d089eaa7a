"""Medians, ratios, tables and the chart: wrong or failed runs are reported, and give no figure."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.measuring.throughput import Result
from benchmarks.peers.catalog import QUICK, ROWS, choose
from benchmarks.reports.chart import bars
from benchmarks.reports.summary import RATIOS, lines_of, ratios_of
from benchmarks.reports.tables import details, overview


def section(*results: Result) -> dict[str, Any]:
    where = {"day": "2026-01-01", "processor": "2 × x", "memory": "8 GB", "python": "3.11", "java": "17"}
    return {"events": 1000, "machine": where, "runs": [result.as_dict() for result in results]}


def run(row: str, rate: float = 0.0, **more: Any) -> Result:
    return Result(row=row, workload="w", rate=rate, complete=True, **more)


def test_the_median_counts() -> None:
    (line,) = lines_of(section(run("tidegate", 1), run("tidegate", 100), run("tidegate", 3)))
    assert (line["rate"], line.runs) == (3, 3)


def test_ratios_are_between_rows_that_are_right() -> None:
    runs = run("tidegate", 300), run("kafka-streams", 100), run("quix", 10, wrong="a gap"), run("bare", 400)
    assert ratios_of(lines_of(section(*runs))) == [("Kafka Streams, exactly once", 3), ("the bare loop", 0.75)]


def test_one_wrong_run_makes_the_row_wrong() -> None:
    text = details("w", section(run("tidegate", 300), run("quix", 10), run("quix", 11, wrong="a gap")))
    assert "WRONG: a gap" in text
    assert "| 10 " not in text


def test_a_peer_that_cannot_run_is_shown_with_its_error() -> None:
    failed = run("bytewax", error="it ended with exit code 1:\nsomething\nImportError: no such thing")
    text = details("w", section(run("tidegate", 300), failed))
    assert "it ended with exit code 1: ImportError: no such thing" in text
    assert "cannot run" in overview({"w": section(failed)})


def test_all_workloads_are_in_the_overview() -> None:
    paced = Result(row="tidegate", workload="latency", p50_ms=100, p99_ms=220)
    text = overview({"w": section(run("tidegate", 120_000)), "latency": section(paced)})
    assert "120,000" in text
    assert "100 / 220 ms" in text


def test_the_picture_has_a_bar_for_each_row_that_is_right() -> None:
    lines = lines_of(section(run("tidegate", 300), run("kafka-streams", 100), run("quix", 10, wrong="a gap")))
    drawn = ElementTree.fromstring(bars("a <title>", "below", lines))
    texts = [element.text for element in drawn.iter() if element.tag.endswith("}text")]
    assert texts[0] == "a <title>"
    assert texts[3::2] == ["300", "100"]


def test_names_of_rows_are_found() -> None:
    assert [row.name for row in choose("quick")] == list(QUICK)
    assert choose("all") == list(ROWS)
    assert [row.name for row in choose("flink")] == ["flink-rocksdb", "flink-heap", "flink-heap-alo"]
    with pytest.raises(KeyError):
        choose("storm")


def test_ratios_name_rows_that_exist() -> None:
    assert {name for subject, other, _ in RATIOS for name in (subject, other)} <= {row.name for row in ROWS}

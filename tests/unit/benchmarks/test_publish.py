"""What is published: between the markers, workload by workload, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.measuring.throughput import Result
from benchmarks.reports.publish import publish

PAGE = "before\n\n<!-- bench:start -->\nold figures\n<!-- bench:end -->\n\nafter\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "images").mkdir(parents=True)
    for page in ("README.md", "docs/benchmarks.md"):
        (tmp_path / page).write_text(PAGE)
    return tmp_path


def section(workload: str, **figures: Any) -> dict[str, Any]:
    where = {"day": "2026-01-01", "processor": "2 × x", "memory": "8 GB", "python": "3.11", "java": "17"}
    runs = [Result(row="tidegate", workload=workload, **figures).as_dict()]
    return {workload: {"events": 1000, "machine": where, "runs": runs}}


def test_only_text_between_the_markers_changes(root: Path) -> None:
    publish(section("w", rate=123_456.0), root)
    for page in ("README.md", "docs/benchmarks.md"):
        text = (root / page).read_text()
        assert text.startswith("before\n\n<!-- bench:start -->\n")
        assert text.endswith("\n<!-- bench:end -->\n\nafter\n")
        assert "123,456" in text
        assert "old figures" not in text
    assert "123,456" in (root / "docs" / "images" / "benchmark.svg").read_text()


def test_workloads_that_were_not_run_stay(root: Path) -> None:
    publish(section("w", rate=123_456.0), root)
    publish(section("yahoo", rate=65_432.0), root)
    text = (root / "README.md").read_text()
    assert "123,456" in text
    assert "65,432" in text


def test_a_page_without_markers_is_refused(root: Path) -> None:
    (root / "README.md").write_text("no place")
    with pytest.raises(ValueError, match="bench:start"):
        publish(section("w", rate=1.0), root)
    assert (root / "README.md").read_text() == "no place"

"""Delta tables, with drivers that are killed around a batch's commit: each row is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark import lake
from tests.spark.shop import sales
from tests.spark.support import ran


class Lake:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def tidegate(self, *arguments: str, faults: str = "") -> subprocess.CompletedProcess[str]:
        where = ["--data", str(self.directory), "--spark-master", "local[2]"]
        return subprocess.run(
            [sys.executable, "-m", "tidegate_app", *arguments, *where],
            env={**os.environ, "TIDEGATE_FAULTS": faults},
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, *jobs: str, faults: str = "") -> subprocess.CompletedProcess[str]:
        settings = ["--conf", "spark.sql.shuffle.partitions=2"]
        return self.tidegate("pipeline", "run", "tests.spark.lake", *jobs, "--once", *settings, faults=faults)

    def sql(self, query: str) -> list[Any]:
        done = self.tidegate("sql", "tests.spark.lake", query, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_delta_table_contains_each_row_once_despite_killed_drivers(tmp_path: Path) -> None:
    made, sent = Lake(tmp_path), list[int]()
    for number, point in enumerate(("table.appended", "table.owned", "table.appended")):
        ids = range(number * 10, number * 10 + 12)  # two come again
        sent += ids
        ran(lake.app, {"data": tmp_path}, (lake.sales, sales(*ids)))
        killed = made.run("distinct", faults=f"{point}:kill@1")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = made.run()
    assert done.returncode == 0, done.stderr

    tables = {"s": "sales_table", "d": "distinct_sales"}
    rows = made.sql(" union all ".join(f"select '{name}' as t, id from {table}" for name, table in tables.items()))
    assert Counter(row["id"] for row in rows if row["t"] == "s") == Counter(sent)
    assert sorted(row["id"] for row in rows if row["t"] == "d") == sorted(set(sent))
    assert all((tmp_path / "lake" / "tables" / name / "_delta_log").is_dir() for name in ("sales", "distinct_sales"))
    counts = {row["what"]: row["n"] for row in made.sql("select what, `count` as n from counts")}
    assert counts == Counter(sale.what for sale in sales(*sent))

"""The page's own spark-submit, as a shell runs it: the pipeline, on the embedded log and on Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.tinder_match.app import app, likes
from examples.tinder_match.events import DAY
from examples.tinder_match.generator import LikeStream, Origin
from tests.docs.pages import ROOT, blocks_of
from tests.spark.support import ran
from tests.spark.world import Expectation, compare, rows_of
from tidegate.jvm.java import find_java
from tidegate_app.kafka import Broker
from tidegate_spark.session.java_home import java_home_for


def command() -> str:
    (found,) = [block.code for block in blocks_of(ROOT / "docs" / "spark.md") if "spark-submit" in block.code]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("log", ["embedded", "kafka"])
def test_spark_submit_works_as_documented(request: pytest.FixtureRequest, tmp_path: Path, log: str) -> None:
    flags: dict[str, Any] = {"data": tmp_path}
    environment = {"TIDEGATE_DATA": str(tmp_path), "SPARK_CONF_DIR": str(tmp_path)}
    environment["JAVA_HOME"] = str(java_home_for(find_java("Spark")))
    if log == "kafka":
        broker: Broker = request.getfixturevalue("private_kafka")()
        flags["broker"] = environment["TIDEGATE_BROKER"] = broker.url
    stream = LikeStream(13, Origin())
    sent = [like for _ in range(2) for like in stream.next(300, DAY)]
    ran(app, flags, (likes, sent))

    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 3\n")
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command()],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    parts = {path.name for path in tmp_path.glob("**/state/0/[0-9]*")}
    assert parts == {"0", "1", "2"}, "what spark-submit is told holds"
    compare(Expectation(sent), lambda name: rows_of(tmp_path / "tinder" / "tables" / name))

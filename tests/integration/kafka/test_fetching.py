"""The jars, as this machine really gets them."""

from __future__ import annotations

from pathlib import Path

from tidegate.jvm.jar_download import choose_source
from tidegate.jvm.jars import damaged_jars
from tidegate_app.kafka.jars import KAFKA_VERSION, pinned_jars


def test_exactly_the_pinned_jars_are_delivered(tmp_path: Path) -> None:
    jars = pinned_jars()

    delivered = choose_source(f"Kafka {KAFKA_VERSION}").fetch([jar.coordinates for jar in jars], tmp_path / "work")

    assert damaged_jars(delivered, jars) == []
    assert {path.name for path in delivered.iterdir()} == {jar.file_name for jar in jars}

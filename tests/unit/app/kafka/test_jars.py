"""Kafka's jars: only whole ones are used, and they are fetched once."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tidegate.jvm.errors import DamagedJarsError
from tidegate.jvm.jar_download import Coordinates
from tidegate.jvm.jars import damaged_jars
from tidegate_app.kafka.jars import KAFKA_VERSION, ensure_jars, pinned_jars

JARS = pinned_jars()


class Shelf:
    """A source that has all jars on a shelf, as they were fetched before; its first deliveries are damaged."""

    name = "Shelf"

    def __init__(self, journal: Path, *, damaged: int = 0) -> None:
        self._shelf, self._journal, self._damaged = ensure_jars(), journal, damaged

    def fetch(self, jars: Iterable[Coordinates], work: Path, *, anew: bool = False) -> Path:
        deliveries = len(read(self._journal))
        with self._journal.open("a") as journal:
            journal.write("anew\n" if anew else "fetched\n")
        work.mkdir()
        libraries = Path(shutil.copytree(self._shelf, work / "libs"))
        if deliveries < self._damaged:
            damage(libraries)
        return libraries


def read(journal: Path) -> list[str]:
    return journal.read_text().split() if journal.exists() else []


def damage(directory: Path) -> str:
    """Turn over one byte of one jar."""
    path = directory / JARS[0].file_name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    return path.name


def ensure(cache: Path, source: Shelf) -> Path:
    return ensure_jars(cache, source)


def test_the_pinned_jars_are_those_of_the_release() -> None:
    coordinates = {jar.coordinates for jar in JARS}

    assert Coordinates("org.apache.kafka", "kafka_2.13", KAFKA_VERSION) in coordinates
    assert any(each.artifact == "log4j-slf4j-impl" for each in coordinates)
    assert len({jar.file_name for jar in JARS}) == len(JARS) == 46


def test_whole_jars_are_used_as_they_are(tmp_path: Path) -> None:
    source = Shelf(tmp_path / "journal")
    first, second = ensure(tmp_path / "cache", source), ensure(tmp_path / "cache", source)

    assert first == second == tmp_path / "cache" / KAFKA_VERSION
    assert damaged_jars(first, JARS) == []
    assert read(tmp_path / "journal") == ["fetched"]


def test_a_damaged_jar_in_the_cache_is_detected_and_fetched_again(tmp_path: Path) -> None:
    source = Shelf(tmp_path / "journal")
    directory = ensure(tmp_path / "cache", source)
    name = damage(directory)
    assert damaged_jars(directory, JARS) == [name]

    assert ensure(tmp_path / "cache", source) == directory
    assert damaged_jars(directory, JARS) == []
    assert read(tmp_path / "journal") == ["fetched", "fetched"]


def test_a_missing_jar_is_a_damaged_one(tmp_path: Path) -> None:
    source = Shelf(tmp_path / "journal")
    directory = ensure(tmp_path / "cache", source)
    (directory / JARS[-1].file_name).unlink()

    ensure(tmp_path / "cache", source)

    assert (directory / JARS[-1].file_name).exists()


def test_jars_that_arrive_damaged_are_fetched_once_more_from_afar(tmp_path: Path) -> None:
    directory = ensure(tmp_path / "cache", Shelf(tmp_path / "journal", damaged=1))

    assert damaged_jars(directory, JARS) == []
    assert read(tmp_path / "journal") == ["fetched", "anew"]


def test_jars_that_arrive_damaged_twice_are_an_error_and_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(DamagedJarsError, match=JARS[0].file_name) as raised:
        ensure(tmp_path / "cache", Shelf(tmp_path / "journal", damaged=9))

    assert "Shelf" in str(raised.value)
    assert raised.value.damaged == (JARS[0].file_name,)
    assert read(tmp_path / "journal") == ["fetched", "anew"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{KAFKA_VERSION}.lock"]


def test_one_of_several_concurrent_processes_fetches_the_jars(tmp_path: Path) -> None:
    source = Shelf(tmp_path / "journal")
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as processes:
        found = set(processes.map(ensure, [tmp_path / "cache"] * 4, [source] * 4))

    assert found == {tmp_path / "cache" / KAFKA_VERSION}
    assert read(tmp_path / "journal") == ["fetched"]


def test_a_killed_processs_leftovers_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "cache" / f".fetching-{KAFKA_VERSION}-abc" / "first"
    left.mkdir(parents=True)

    ensure(tmp_path / "cache", Shelf(tmp_path / "journal"))

    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [KAFKA_VERSION, f"{KAFKA_VERSION}.lock"]

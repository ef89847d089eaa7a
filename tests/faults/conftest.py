"""Fixtures: a seed, workers to start, and worlds for them to live in: on an embedded log, on a broker, or on each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support.disk import Mount, mounts
from tests.faults.support.embedded import EmbeddedWorld
from tests.faults.support.kafka import KafkaWorld
from tests.faults.support.processes import Zygote
from tests.faults.support.world import World, random_seed

NewWorld = Callable[..., World]
NewEmbeddedWorld = Callable[..., EmbeddedWorld]
NewKafkaWorld = Callable[..., KafkaWorld]

zygotes: list[Zygote] = []


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygotes.append(Zygote())
    yield zygotes[-1]
    zygotes[-1].close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for zygote in zygotes:
        terminalreporter.write_line(f"{zygote.started:,} workers were started, {zygote.killed:,} of them killed")


@pytest.fixture
def seed() -> int:
    """TIDEGATE_SEED repeats a run; every failure names its seed."""
    found = random_seed()
    sys.stdout.write(f"TIDEGATE_SEED={found}\n")
    return found


@pytest.fixture
def mount() -> Iterator[Mount]:
    """A small file system of its own at a directory; it is gone before the worlds are."""
    with mounts() as make:
        yield make


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.slow)])
def new_world(request: pytest.FixtureRequest) -> NewWorld:
    """For what holds on every log. On a broker everything takes longer: there it is part of `make faults` only."""
    made: NewWorld = request.getfixturevalue(f"new_{request.param}_world")
    return made


@pytest.fixture
def new_embedded_world(zygote: Zygote, tmp_path: Path, seed: int) -> Iterator[NewEmbeddedWorld]:
    """Makes a world for the app of this name in `support.apps`, or for MODULE:NAME."""
    worlds: list[EmbeddedWorld] = []

    def make(app: str, **environment: str) -> EmbeddedWorld:
        worlds.append(EmbeddedWorld(tmp_path / f"world-{len(worlds)}", zygote, _where(app), seed, **environment))
        return worlds[-1]

    yield make
    for world in worlds:
        world.end()


@pytest.fixture
def new_kafka_world(
    zygote: Zygote, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> Iterator[NewKafkaWorld]:
    """The same on a broker: the shared one of the tests, or a named one. See `KafkaWorld` for the options."""
    worlds: list[KafkaWorld] = []
    shared: list[KafkaWorld] = []

    def make(app: str, *, broker: str = "", **options: Any) -> KafkaWorld:
        directory, url = tmp_path / f"world-{len(worlds)}", broker or request.getfixturevalue("kafka").url
        worlds.append(KafkaWorld(directory, zygote, _where(app), seed, broker=url, **options))
        if not broker:
            shared.append(worlds[-1])
        return worlds[-1]

    yield make
    for world in worlds:
        world.end()
    for world in shared:
        world.delete_topics()


def _where(app: str) -> str:
    return app if ":" in app else f"tests.faults.support.apps:{app}"

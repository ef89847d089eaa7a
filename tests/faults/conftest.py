"""Fixtures: a seed, workers to start, and worlds for them to live in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.support.processes import Zygote
from tests.faults.support.world import World, random_seed

NewWorld = Callable[..., World]
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
    return random_seed()


@pytest.fixture
def new_world(zygote: Zygote, tmp_path: Path, seed: int) -> Iterator[NewWorld]:
    """Makes a world for the app of this name in `support.apps`, or for MODULE:NAME."""
    worlds: list[World] = []

    def make(app: str, **environment: str) -> World:
        where = app if ":" in app else f"tests.faults.support.apps:{app}"
        worlds.append(World(tmp_path / f"world-{len(worlds)}", zygote, where, seed, **environment))
        return worlds[-1]

    yield make
    for world in worlds:
        world.end()

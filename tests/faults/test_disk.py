"""A full disk: the worker stops and says so, nothing acknowledged is lost, and it goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support import oracle
from tests.faults.support.apps import Entry
from tests.faults.support.feed import entries
from tests.faults.support.world import Picture, World

SIZE = 48 << 20
Mount = Callable[[Path], Path]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """A small file system of its own at a directory."""
    mounted: list[Path] = []

    def make(directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command: a full disk cannot be made here")
        if done.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here ({done.stderr.strip()}): a full disk cannot be made")
        mounted.append(directory)
        return directory

    yield make
    for directory in mounted:
        subprocess.run(["umount", str(directory)], check=True)


class Ballast:
    """A file that takes all the room but a little."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "ballast"

    def load(self, *, leave: int) -> None:
        room = os.statvfs(self._file.parent)
        size = room.f_bavail * room.f_frsize - leave
        with self._file.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def drop(self) -> None:
        self._file.unlink()


def check_sent(world: World, picture: Picture) -> None:
    there = {entry.id for entry in picture.values("entries", Entry)}
    lost = set(map(int, world.acknowledged)) - there
    assert not lost, world.told(f"{len(lost)} acknowledged entries are not in the log: {sorted(lost)[:5]}")
    assert len(world.acknowledged) > 10, world.told("hardly anything was acknowledged: the test shows nothing")


@pytest.mark.parametrize("leave", [300_000, 2_000_000])
def test_a_full_disk_under_the_log_stops_the_worker_and_loses_nothing(
    new_embedded_world: NewEmbeddedWorld, mount: Mount, seed: int, leave: int
) -> None:
    world = new_embedded_world("ledger")
    ballast = Ballast(mount(world.directory / "data"))
    world.append("entries", entries(seed, 50))
    world.drain()
    ballast.load(leave=leave)
    for _ in range(2):  # it does not get better by trying again
        world.fail(saying="no room left", until_end=False, feed="tests.faults.support.feed:send_large")

    ballast.drop()
    world.drain()
    picture = world.look()
    check_sent(world, picture)
    oracle.check_ledger(world, picture)


def test_a_full_disk_under_the_stores_stops_the_worker_and_loses_nothing(
    new_embedded_world: NewEmbeddedWorld, mount: Mount, seed: int
) -> None:
    """The log has room: what is committed there is committed, and the stores are only behind."""
    world = new_embedded_world("ledger")
    world.append("entries", entries(seed, 50))
    world.drain()
    world.put_stores_on(mount(world.directory / "stores"))
    ballast = Ballast(world.directory / "stores")
    ballast.load(leave=200_000)
    world.append("entries", entries(seed + 1, 6000, keys=6000, first=51))
    world.fail(saying="no room left", until_end=False)

    ballast.drop()
    world.drain()
    oracle.check_ledger(world, world.look())

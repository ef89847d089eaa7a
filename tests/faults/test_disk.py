"""A full disk stops the worker with an error, loses no acknowledged append, and it resumes when there is space."""

from __future__ import annotations

import pytest

from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support import oracle
from tests.faults.support.apps import Entry
from tests.faults.support.disk import Ballast, Mount
from tests.faults.support.feed import entries
from tests.faults.support.world import Picture, World


def check_sent(world: World, picture: Picture) -> None:
    there = {entry.id for entry in picture.values("entries", Entry)}
    lost = set(map(int, world.acknowledged)) - there
    assert not lost, world.with_seed(f"{len(lost)} acknowledged entries are not in the log: {sorted(lost)[:5]}")
    assert len(world.acknowledged) > 10, world.with_seed("hardly anything was acknowledged: the test shows nothing")


@pytest.mark.parametrize("leave", [300_000, 2_000_000])
def test_a_full_log_disk_stops_the_worker_without_data_loss(
    new_embedded_world: NewEmbeddedWorld, mount: Mount, seed: int, leave: int
) -> None:
    world = new_embedded_world("ledger")
    ballast = Ballast(mount(world.directory / "data"))
    world.append("entries", entries(seed, 50))
    world.drain()
    ballast.load(leave=leave)
    for _ in range(2):  # it does not get better by trying again
        world.fail(error="no space left", until_end=False, feed="tests.faults.support.feed:send_large")

    ballast.drop()
    world.drain()
    picture = world.look()
    check_sent(world, picture)
    oracle.check_ledger(world, picture)


def test_a_full_store_disk_stops_the_worker_without_data_loss(
    new_embedded_world: NewEmbeddedWorld, mount: Mount, seed: int
) -> None:
    """The log has space: its commits stand, and the stores only lag behind."""
    world = new_embedded_world("ledger")
    world.append("entries", entries(seed, 50))
    world.drain()
    world.put_stores_on(mount(world.directory / "stores"))
    ballast = Ballast(world.directory / "stores")
    ballast.load(leave=200_000)
    world.append("entries", entries(seed + 1, 6000, keys=6000, first=51))
    world.fail(error="no space left", until_end=False)

    ballast.drop()
    world.drain()
    oracle.check_ledger(world, world.look())

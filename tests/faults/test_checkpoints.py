"""Checkpoints under kill -9 at every step of tasks and leader: complete checkpoints restore, processing is exact."""

from __future__ import annotations

import shutil
import time
from itertools import pairwise

import pytest

from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.apps import Entry, Posting
from tests.faults.support.feed import START, entries
from tests.faults.support.points import OF_CHECKPOINTS
from tests.faults.support.world import KILLED, World
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.reader import open_checkpoint

COUNT = 300
OFTEN = {"TIDEGATE_CHECKPOINT_INTERVAL": "0.05", "TIDEGATE_TEST_TOIL": "0.0003"}
AT_START = {"leader.starting", "leader.started"}
"""A worker passes these once."""
WHEN_RESTORING = {"recovery.fetching", "recovery.fetched"}
QUICK = {"snapshot.uploading", "leader.begun", "leader.completed"}
"""The others are for `make faults`."""


def storage_of(world: World) -> CheckpointStorage:
    return CheckpointStorage(str(world.data.parent), world.data.name)


def complete(world: World) -> list[int]:
    """The complete checkpoints, each of which is whole."""
    storage = storage_of(world)
    found = storage.checkpoints()
    for epoch in found:
        open_checkpoint(storage, epoch).verify()
    return found


def wait_for_checkpoints(world: World, count: int) -> None:
    """Let the running worker take more checkpoints."""
    storage = storage_of(world)
    newest = max(storage.checkpoints(), default=0)
    deadline = time.monotonic() + 60
    while max(storage.checkpoints(), default=0) < newest + count:
        assert time.monotonic() < deadline, world.with_seed(world.lives[-1].output[-3000:])
        time.sleep(0.02)


def lose_stores(world: World) -> None:
    for directory in world.owners():
        shutil.rmtree(directory, ignore_errors=True)


def finish(world: World) -> None:
    """Without local state: whatever the kill has left in the storage must do, or the changelogs."""
    lose_stores(world)
    world.drain()
    oracle.check_chained(world, world.look())


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in QUICK else pytest.mark.slow) for point in OF_CHECKPOINTS]
)
def test_a_kill_at_any_step_leaves_complete_checkpoints_or_none(new_world: NewWorld, seed: int, point: str) -> None:
    world = new_world("chained", **OFTEN)
    world.append("entries", entries(seed, COUNT, in_order=True))
    if point in WHEN_RESTORING:
        first = world.live(until_end=False)
        wait_for_checkpoints(world, 2)
        first.kill()
        first.wait()
        lose_stores(world)
    visit = 1 if point in AT_START | WHEN_RESTORING else 3
    life = world.live(f"{point}:kill@{visit}", until_end=False)
    assert life.wait() == KILLED, world.with_seed(life.output)
    assert world.struck.total() == 1, world.with_seed("something else killed the worker")
    complete(world)

    again = world.live(until_end=False)
    wait_for_checkpoints(world, 2)
    again.kill()
    again.wait()
    assert complete(world)
    finish(world)


def test_a_repeatedly_killed_worker_restores_from_its_checkpoints(new_world: NewWorld, seed: int) -> None:
    """Each worker starts without local state and is killed during a checkpoint."""
    world = new_world("chained", **OFTEN)
    world.append("entries", entries(seed, COUNT, in_order=True))
    for number, point in enumerate(("snapshot.writing", "snapshot.uploaded", "leader.reported", "leader.deciding")):
        life = world.live(f"{point}:kill@{8 + number}", until_end=False)
        assert life.wait() == KILLED, world.with_seed(life.output)
        complete(world)
        lose_stores(world)
    assert world.struck.total() == 4
    finish(world)


def test_a_suspended_handler_blocks_neither_commits_nor_checkpoints(new_world: NewWorld, seed: int) -> None:
    """Its own record is in none of them: a restore from one processes it again."""
    world = new_world("ledger", TIDEGATE_CHECKPOINT_INTERVAL="0.3", TIDEGATE_TEST_TOIL="0.002")
    slow = Entry(id=1, key="slow", amount=1, at=START, wait=5.0)
    world.append("entries", [slow, *entries(seed, 4000, first=2)])
    life = world.live(until_end=False)
    life.wait_until(lambda: "1" in world.notes, 30, "did not begin to wait")
    before, seen = max(storage_of(world).checkpoints(), default=0), [world.observed("postings")]
    began = time.monotonic()
    while time.monotonic() < began + 4.0:
        time.sleep(0.5)
        seen.append(world.observed("postings"))
    taken = [storage_of(world).manifest(epoch) for epoch in storage_of(world).checkpoints() if epoch > before + 1]
    life.kill()

    assert all(later > earlier for earlier, later in pairwise(seen)), world.with_seed(f"the others stood still: {seen}")
    assert len(taken) >= 2, world.with_seed(f"checkpoints did not complete: {life.output[-3000:]}")
    for manifest in taken:
        waiting = [mark.unfinished for task in manifest.tasks for mark in task.marker.inputs.values()]
        assert sum(map(len, waiting)) == 1, world.with_seed(f"checkpoint {manifest.epoch} has not waited for nobody")
    lose_stores(world)
    world.drain()
    picture = world.look()
    assert [posting.id for posting in picture.by_key("postings", Posting)["slow"]] == [1]
    assert world.notes.count("1") >= 2, "it was begun again"
    oracle.check_ledger(world, picture)

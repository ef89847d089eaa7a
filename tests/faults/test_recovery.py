"""Opening a task: killed on the way, again and again, and over stores that are damaged, gone, or from another time."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import NewEmbeddedWorld, NewWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.world import KILLED, World
from tidegate.state.rocksdb import RocksStore

SERVICE = "ledger"


def with_unflushed_state(new_world: NewWorld, seed: int, count: int = 600) -> World:
    """A world whose stores lag behind their changelogs: they were never written to disk."""
    world = new_world(SERVICE, TIDEGATE_FLUSH_SECONDS="1000", TIDEGATE_TEST_TOIL="0.0002")
    world.append("entries", entries(seed, count))
    world.suffer("commit.applied:kill@20")
    return world


def drained(new_world: NewWorld, seed: int, count: int = 600) -> World:
    """A world that came to its end in order, its stores full."""
    world = new_world(SERVICE)
    world.append("entries", entries(seed, count, keys=200))
    world.drain()
    return world


def more(world: World, seed: int) -> None:
    world.append("entries", entries(seed + 1, 200, keys=200, first=10_001))


# -- killed while restoring -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["recovery.started", "recovery.replaying", "recovery.marker"])
def test_a_task_killed_during_a_restore_restores_after_a_restart(new_world: NewWorld, seed: int, point: str) -> None:
    world = with_unflushed_state(new_world, seed)
    for visit in (1, 2, 1, 2, 1):
        world.suffer(f"{point}:kill@{visit}")
    world.drain()
    assert world.struck[f"{point}:kill"] == 5
    oracle.check_ledger(world, world.look())


def test_a_repeatedly_killed_restore_completes(new_world: NewWorld, seed: int) -> None:
    """Restoring begins where the store's own position is, so that kills at random moments never make it wrong."""
    dice = random.Random(seed)
    world = with_unflushed_state(new_world, seed, 1500)
    for _ in range(6):
        points = ("recovery.started", "recovery.replaying", "recovery.marker", "commit.appended", "commit.applied")
        world.suffer(f"{dice.choice(points)}:kill@{dice.randint(1, 2)}")
    world.drain()
    oracle.check_ledger(world, world.look())


def test_committed_changes_missing_from_the_store_are_replayed(new_world: NewWorld, seed: int) -> None:
    world = new_world(SERVICE, TIDEGATE_FLUSH_SECONDS="1000", TIDEGATE_TEST_TOIL="0.0002")
    world.append("entries", entries(seed, 400))
    for visit in (3, 4, 7):
        world.suffer(f"commit.appended:kill@{visit}")
    committed = sum(len(records) for records in world.topics("postings"))
    assert committed > 0, world.with_seed("nothing was committed before the kills")
    world.drain()
    oracle.check_ledger(world, world.look())


def test_state_in_memory_is_rebuilt_from_the_changelog_at_every_start(new_world: NewWorld, seed: int) -> None:
    """Workers with a store on disk and workers without alternate: the store on disk lags behind, and catches up."""
    dice = random.Random(seed)
    world = new_world(SERVICE, TIDEGATE_TEST_TOIL="0.0002")
    world.append("entries", entries(seed, 1000, waiting=0.2))
    for store in ("memory", "rocksdb", "memory", "memory", "rocksdb", "memory"):
        life = world.live(f"commit.applied:kill@{dice.randint(3, 9)}", environment={"TIDEGATE_STORE": store})
        assert life.wait() in (0, KILLED), world.with_seed(life.output)
    world.drain()
    oracle.check_ledger(world, world.look())


# -- stores that are damaged ----------------------------------------------------------------------------------------


def flip_bits(file: Path, dice: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(max(1, len(content) // 200)):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    file.write_bytes(content)


def truncate(file: Path, dice: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size * dice.randrange(10, 90) // 100])


def delete(file: Path, dice: random.Random) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [flip_bits, truncate, delete])
@pytest.mark.parametrize("kind", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_a_damaged_store_is_rebuilt(
    new_world: NewWorld, seed: int, kind: str, damage: Callable[[Path, random.Random], None]
) -> None:
    """Found when it is opened or when a handler reads from it: either way its next owner has a right one."""
    dice = random.Random(seed)
    world = drained(new_world, seed)
    more(world, seed)
    files = [file for number in (0, 1) for file in world.store_of(SERVICE, number).glob(kind)]
    assert files, world.with_seed(f"there is no {kind} to be damaged")
    for file in files:
        damage(file, dice)

    life = world.live()
    if life.wait() == 1:  # the damage was found only during use
        assert "rebuilt from its changelog" in life.output, world.with_seed(life.output)
        world.drain()
    assert life.status in (0, 1), world.with_seed(life.output)
    oracle.check_ledger(world, world.look())


@pytest.mark.parametrize("handled_by", ["ledger", "skipping"])
def test_store_damage_found_by_a_handler_stops_the_worker_and_the_store_is_rebuilt(
    new_world: NewWorld, seed: int, handled_by: str
) -> None:
    """No policy takes it for the record's fault; and the next start does not run into it again."""
    world = new_world(handled_by, TIDEGATE_CACHE_ENTRIES="1000")
    world.append("entries", entries(seed, 3000, keys=2000))
    world.drain()
    for number in (0, 1):
        largest = max(world.store_of(SERVICE, number).glob("*.sst"), key=lambda file: file.stat().st_size)
        content = bytearray(largest.read_bytes())
        for place in range(0, len(content) // 2, 1000):  # the blocks of data come first
            content[place] ^= 0xFF
        largest.write_bytes(content)
    world.append("entries", entries(seed + 1, 1000, keys=2000, first=10_001))

    world.fail(error="rebuilt from its changelog")
    for _ in range(3):  # once for each task that has one
        life = world.live()
        if life.wait() == 0:
            break
        assert "rebuilt from its changelog" in life.output, world.with_seed(life.output)
    assert life.status == 0, world.with_seed(life.output)
    oracle.check_ledger(world, world.look())


def test_a_missing_store_is_rebuilt(new_world: NewWorld, seed: int) -> None:
    world = drained(new_world, seed)
    more(world, seed)
    world.lose_stores()
    world.drain()
    oracle.check_ledger(world, world.look())


def test_a_store_next_to_an_older_copy_of_the_log_is_rebuilt(new_embedded_world: NewEmbeddedWorld, seed: int) -> None:
    """The work since then is done again, from the copy."""
    world = new_embedded_world(SERVICE)
    world.append("entries", entries(seed, 600, keys=200))
    world.drain()
    copy = world.directory / "copy"
    shutil.copytree(world.data / "log", copy)
    more(world, seed)
    world.drain()
    shutil.rmtree(world.data / "log")
    shutil.move(copy, world.data / "log")

    life = world.drain()
    assert "ahead of its changelog" in life.output, world.with_seed(life.output)
    oracle.check_ledger(world, world.look())
    more(world, seed + 7)
    world.drain()
    oracle.check_ledger(world, world.look())


def test_a_store_ahead_of_its_changelog_is_rebuilt(new_world: NewWorld, seed: int) -> None:
    world = drained(new_world, seed)
    for number in (0, 1):
        store = RocksStore(world.store_of(SERVICE, number))
        assert store.position is not None
        nonsense = [(b"\x7fnot in the changelog", b"1")]
        store.apply(nonsense, store.position._replace(offset=store.position.offset + 1000))
        store.close()
    more(world, seed)
    life = world.drain()
    assert "ahead of its changelog" in life.output, world.with_seed(life.output)
    oracle.check_ledger(world, world.look())


def test_the_store_of_another_task_is_rebuilt(new_world: NewWorld, seed: int) -> None:
    """Swapped stores belong to another changelog: the lineage differs."""
    world = drained(new_world, seed)
    more(world, seed)
    first, second, aside = world.store_of(SERVICE, 0), world.store_of(SERVICE, 1), world.directory / "aside"
    for source, target in ((first, aside), (second, first), (aside, second)):
        shutil.move(source, target)
    life = world.drain()
    assert "another changelog" in life.output or "ahead of" in life.output, world.with_seed(life.output)
    oracle.check_ledger(world, world.look())


def test_a_store_behind_the_tombstone_retention_is_rebuilt(new_world: NewWorld, seed: int) -> None:
    """After half the tombstone retention of a changelog, its tail may lack removals."""
    world = drained(new_world, seed)
    for number in (0, 1):
        store = RocksStore(world.store_of(SERVICE, number))
        assert store.position is not None
        store.apply([], store.position._replace(offset=store.position.offset - 5, written_ms=0))
        store.close()
    life = world.drain()
    assert "so old" in life.output, world.with_seed(life.output)
    oracle.check_ledger(world, world.look())


# -- changelogs that are not what they were -------------------------------------------------------------------------


def test_a_compacted_changelog_restores_all_state(new_embedded_world: NewEmbeddedWorld, seed: int) -> None:
    world = new_embedded_world(SERVICE)
    world.append("entries", entries(seed, 600, keys=200))
    world.drain()
    before = sum(map(len, world.topics("ledger.ledger.changelog")))
    world.clean()
    after = sum(map(len, world.topics("ledger.ledger.changelog")))
    assert after < before, world.with_seed("nothing was compacted")
    world.lose_stores()
    more(world, seed)
    world.drain()
    oracle.check_ledger(world, world.look())


@pytest.mark.parametrize("point", ["log.cleaning", "log.cleaned"])
@pytest.mark.parametrize("visit", [1, 3])
def test_a_kill_during_compaction_loses_nothing(
    new_embedded_world: NewEmbeddedWorld, seed: int, point: str, visit: int
) -> None:
    world = new_embedded_world(SERVICE, TIDEGATE_TEST_TOIL="0.0002")
    world.log_options = {"clean_records": 50, "maintenance_interval": 0.01, "block_records": 20, "clean_keys": 40}
    world.append("entries", entries(seed, 1000, keys=60))
    for _ in range(2):
        world.suffer(f"{point}:kill@{visit}", until_end=False)
    world.lose_stores()
    world.drain()
    oracle.check_ledger(world, world.look())


def test_a_recreated_changelog_is_refused(new_world: NewWorld, seed: int) -> None:
    """State without its changelog: to continue would handle the input again from its start."""
    world = drained(new_world, seed)
    world.recreate("ledger.ledger.changelog")
    world.fail(error="changelog")
    world.fail(error="tidegate reset")


def test_a_recreated_input_topic_is_refused(new_world: NewWorld, seed: int) -> None:
    """The positions in the markers speak of records that the new topic does not have."""
    world = drained(new_world, seed)
    world.recreate("entries")
    world.fail(error="entries", until_end=False)

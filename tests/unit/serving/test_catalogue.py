"""Which checkpoints there are: each manifest is read once, and what is listed is what is there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.unit.checkpoints.made import make_checkpoint
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.errors import CheckpointStorageError
from tidegate.serving.catalogue import Catalogue

CHANGES = {b"\x02a": b"1"}


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(f"file://{tmp_path / 'kept'}", "shop")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose manifest was read."""
    folders: list[str] = []
    before = CheckpointStorage.manifest_in

    def counted(self: CheckpointStorage, folder: str) -> Manifest:
        folders.append(folder)
        return before(self, folder)

    monkeypatch.setattr(CheckpointStorage, "manifest_in", counted)
    return folders


def catalogue_of(storage: CheckpointStorage, seconds: float = 10.0) -> Catalogue:
    return Catalogue(lambda: CheckpointStorage(storage.url.removesuffix("/shop"), "shop"), lambda: seconds)


async def test_a_manifest_is_read_once(storage: CheckpointStorage, tmp_path: Path, read: list[str]) -> None:
    for epoch in (1, 2):
        make_checkpoint(storage, tmp_path, epoch, CHANGES)
    make_checkpoint(storage, tmp_path, 3, CHANGES, name="mine")
    storage.put("checkpoints/00000004/files/count.0/000001.sst", b"under way")
    catalogue = catalogue_of(storage)
    read.clear()

    for _ in range(5):
        assert [one.epoch for one in await catalogue.checkpoints()] == [2, 1]
        assert [one.name for one in await catalogue.savepoints()] == ["mine"]

    assert sorted(read) == ["checkpoints/00000001", "checkpoints/00000002", "savepoints/mine"]
    make_checkpoint(storage, tmp_path, 4, CHANGES)
    read.clear()
    assert [one.epoch for one in await catalogue.checkpoints()] == [4, 2, 1]
    assert read == ["checkpoints/00000004"]


async def test_deleted_checkpoints_are_dropped_from_the_catalogue(storage: CheckpointStorage, tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        make_checkpoint(storage, tmp_path, epoch, CHANGES)
    catalogue = catalogue_of(storage)
    assert len(await catalogue.checkpoints()) == 3

    storage.retain(1)

    assert [one.epoch for one in await catalogue.checkpoints()] == [3]
    assert list(catalogue._checkpoints) == [3]


async def test_a_name_that_is_used_again_is_another_savepoint(storage: CheckpointStorage, tmp_path: Path) -> None:
    make_checkpoint(storage, tmp_path, 5, CHANGES, name="mine")
    catalogue = catalogue_of(storage)
    assert [one.epoch for one in await catalogue.savepoints()] == [5]

    storage.delete_savepoint("mine")
    make_checkpoint(storage, tmp_path, 6, CHANGES, name="mine")

    assert [one.epoch for one in await catalogue.savepoints()] == [6]


async def test_a_damaged_entry_does_not_hide_the_others(storage: CheckpointStorage, tmp_path: Path) -> None:
    for epoch in (1, 2):
        make_checkpoint(storage, tmp_path, epoch, CHANGES)
    storage.put("checkpoints/00000002/manifest.json", b"{")
    catalogue = catalogue_of(storage)

    assert [one.epoch for one in await catalogue.checkpoints()] == [1]


async def test_a_storage_that_hangs_is_an_error_in_time(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(CheckpointStorage, "epochs", lambda _: gate.wait(30))
    catalogue = catalogue_of(storage, seconds=0.1)
    try:
        for _ in range(5):
            with pytest.raises(CheckpointStorageError, match=r"has not answered for 0\.1 s"):
                await catalogue.checkpoints()
    finally:
        gate.set()

"""Reading a checkpoint returns what was written, or an error that names the damaged file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.checkpoints.made import Kind, make_checkpoint, make_manifest, put_task
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.in_flight_format import InFlightRecord, decode_in_flight, encode_in_flight
from tidegate.checkpoints.storage.reader import open_checkpoint, open_uri
from tidegate.errors import CheckpointDamagedError, CheckpointNotFoundError
from tidegate.state.base import StorePosition

ALL = (b"", b"\xff\xff")
RECORDS = [
    InFlightRecord("matches", 0, 4, 1_000, b"k", b"v", (("tidegate", b"shop|1|count.0|3"),)),
    InFlightRecord("matches", 0, 9, 1_001, None, None),
]


@pytest.mark.parametrize("kind", ["rocksdb", "memory"])
def test_a_task_is_read_as_it_was(url: str, tmp_path: Path, kind: Kind) -> None:
    storage = CheckpointStorage(url, "shop")
    entries = {b"\x02%04d" % number: b"value %d" % number for number in range(1000)}
    task = put_task(storage, tmp_path, 5, entries, kind=kind, in_flight=RECORDS)
    storage.put_manifest(make_manifest(5, [task]))

    reader = open_checkpoint(storage, 5)
    found = reader.task("count", 0)
    store = reader.open_store(found, tmp_path / "read")

    assert dict(store.scan(*ALL)) == entries
    assert store.position == StorePosition("line", 50, 1_000) == found.position
    assert found.marker.inputs["orders:0"].position == 7
    assert list(reader.in_flight(found)) == RECORDS
    store.close()
    reader.verify()


def test_a_savepoint_can_be_copied_to_another_place(tmp_path: Path) -> None:
    storage = CheckpointStorage(str(tmp_path / "here"), "shop")
    make_checkpoint(storage, tmp_path, 5, {b"\x02a": b"1"}, name="mine")
    (tmp_path / "here/shop/savepoints/mine").rename(tmp_path / "there")

    for uri in (f"file://{tmp_path}/there", f"{tmp_path}/there/manifest.json", f"file://{tmp_path}/there/"):
        reader = open_uri(uri)
        store = reader.open_store(reader.task("count", 0), tmp_path / "read")
        assert store.get(b"\x02a") == b"1"
        store.close()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "grown"])
def test_a_damaged_file_is_rejected(url: str, tmp_path: Path, damage: str) -> None:
    storage = CheckpointStorage(url, "shop")
    manifest = make_checkpoint(storage, tmp_path, 5, {b"\x02%d" % number: b"x" * 100 for number in range(100)})
    victim = next(file for file in manifest.tasks[0].files if file.name.endswith(".sst"))
    path = f"{storage.folder_of(5)}/{victim.path}"
    raw = storage.get(path)
    if damage == "missing":
        storage.delete(path)
    else:
        middle = len(raw) // 2
        flipped = raw[:middle] + bytes([raw[middle] ^ 8]) + raw[middle + 1 :]
        storage.put(path, {"truncated": raw[:-1], "flipped": flipped, "grown": raw + b"x"}[damage])

    reader = open_checkpoint(storage, 5)
    with pytest.raises(CheckpointDamagedError, match=victim.name):
        reader.open_store(reader.task("count", 0), tmp_path / "read")
    assert not (tmp_path / "read").exists()
    with pytest.raises(CheckpointDamagedError, match=victim.name):
        reader.verify()


def test_a_missing_checkpoint_or_task_gives_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError):
        open_uri(f"file://{tmp_path}/nowhere")
    storage = CheckpointStorage(str(tmp_path), "shop")
    make_checkpoint(storage, tmp_path, 1, {})
    reader = open_checkpoint(storage, 1)
    with pytest.raises(CheckpointDamagedError, match="no task"):
        reader.task("other", 0)


def test_records_that_are_cut_off_are_damaged() -> None:
    raw = encode_in_flight(RECORDS)
    assert list(decode_in_flight(raw, "here")) == RECORDS
    with pytest.raises(CheckpointDamagedError):
        list(decode_in_flight(raw[:-3], "here"))

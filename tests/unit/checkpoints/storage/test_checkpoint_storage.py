"""The checkpoint storage: checkpoints are complete or absent, shared files are kept, damage is found."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from tests.unit.checkpoints.made import make_checkpoint, make_manifest
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage, check_name
from tidegate.checkpoints.storage.manifest import FileRef, TaskSnapshot, decode_manifest, encode_manifest
from tidegate.engine.formats.commit_marker import CommitMarker
from tidegate.errors import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointStorageError,
    UsageError,
)


@pytest.fixture
def storage(url: str) -> CheckpointStorage:
    return CheckpointStorage(url, "shop")


def test_an_unused_storage_is_empty(storage: CheckpointStorage) -> None:
    assert (storage.checkpoints(), storage.savepoints(), storage.epochs()) == ([], [], [])
    with pytest.raises(CheckpointNotFoundError, match="00000007"):
        storage.manifest(7)


def test_a_checkpoint_without_a_manifest_is_incomplete(storage: CheckpointStorage) -> None:
    storage.put("checkpoints/00000003/files/count.0/000001.sst", b"abc")

    assert storage.epochs() == [3]
    assert storage.checkpoints() == []


def test_checkpoints_are_listed_newest_first_and_savepoints_by_name(storage: CheckpointStorage, tmp_path: Path) -> None:
    for epoch in (9, 10, 2):
        make_checkpoint(storage, tmp_path, epoch, {b"\x02a": b"1"})
    make_checkpoint(storage, tmp_path, 11, {b"\x02a": b"1"}, name="before-upgrade")

    assert storage.checkpoints() == [10, 9, 2]
    assert storage.savepoints() == ["before-upgrade"]
    assert storage.manifest(9).epoch == 9
    assert storage.manifest("before-upgrade").id == "before-upgrade"


def test_a_shared_file_is_deleted_with_its_last_checkpoint(storage: CheckpointStorage) -> None:
    """1 has a and b, 2 shares b and adds c, 3 shares c and adds d."""
    for epoch, own, shared in ((1, "ab", ()), (2, "c", ((1, "b"),)), (3, "d", ((2, "c"),))):
        _put(storage, epoch, own, shared)

    assert storage.retain(2) == [1]
    assert _files(storage) == {"1/b", "2/c", "2/manifest.json", "3/d", "3/manifest.json"}
    assert storage.retain(1) == [2]
    assert _files(storage) == {"2/c", "3/d", "3/manifest.json"}
    _put(storage, 4, "e", ())
    assert storage.retain(1) == [3]
    assert _files(storage) == {"4/e", "4/manifest.json"}


def test_aborted_checkpoints_are_swept_and_those_in_progress_are_kept(storage: CheckpointStorage) -> None:
    storage.put("checkpoints/00000001/files/x", b"given up")
    _put(storage, 2, "a", ())
    storage.put("checkpoints/00000003/files/y", b"under way")

    storage.retain(3)

    assert _files(storage) == {"2/a", "2/manifest.json", "3/y"}


def test_aborted_checkpoints_are_swept_before_the_first_complete_one(storage: CheckpointStorage) -> None:
    for epoch in (1, 2, 3):
        storage.put(f"checkpoints/{epoch:08d}/files/x", b"given up, or under way")

    storage.sweep(3)

    assert _files(storage) == {"3/x"}


def test_files_shared_with_a_complete_checkpoint_are_not_swept(storage: CheckpointStorage) -> None:
    _put(storage, 1, "a", ())
    _put(storage, 2, "b", ((1, "a"),))
    storage.retain(1)
    storage.put("checkpoints/00000003/files/x", b"given up")

    storage.sweep(4)

    assert _files(storage) == {"1/a", "2/b", "2/manifest.json"}


def test_files_that_are_gone_are_named(storage: CheckpointStorage) -> None:
    _put(storage, 1, "a", ())
    _put(storage, 2, "b", ((1, "a"),))
    assert storage.missing(2) == []
    (gone,) = (path for path in storage.files() if path.endswith("/a"))
    storage.delete(gone)
    assert storage.missing(2) == [gone]
    storage.delete("checkpoints/00000002/manifest.json")
    assert storage.missing(2) == ["checkpoints/00000002/manifest.json"]


def test_nothing_is_swept_while_a_kept_manifest_cannot_be_read(storage: CheckpointStorage) -> None:
    _put(storage, 1, "a", ())
    _put(storage, 2, "b", ((1, "a"),))
    _put(storage, 3, "c", ())
    storage.put("checkpoints/00000002/manifest.json", b"{}")

    storage.retain(2)

    assert {"1/a", "2/b", "3/c"} <= _files(storage)


def test_deleting_a_savepoint_deletes_nothing_else(storage: CheckpointStorage, tmp_path: Path) -> None:
    make_checkpoint(storage, tmp_path, 1, {b"\x02a": b"1"})
    make_checkpoint(storage, tmp_path, 2, {b"\x02a": b"1"}, name="mine")

    storage.delete_savepoint("mine")

    assert storage.savepoints() == []
    assert storage.files("savepoints") == []
    assert storage.checkpoints() == [1]
    with pytest.raises(CheckpointNotFoundError):
        storage.delete_savepoint("mine")


@pytest.mark.parametrize("name", ["", "12", "../up", "a/b", ".hidden", "x" * 101, "a b"])
def test_a_savepoint_has_the_name_of_a_folder(name: str) -> None:
    with pytest.raises(UsageError, match="name of a savepoint"):
        check_name(name)


def test_an_unwritable_storage_gives_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    storage = CheckpointStorage(f"file://{tmp_path / 'file'}", "shop")

    with pytest.raises(CheckpointStorageError, match="checkpoint_storage"):
        storage.put("checkpoints/00000001/x", b"1")


def test_an_unknown_url_scheme_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be used as checkpoint storage"):
        CheckpointStorage("carrier-pigeon://loft", "shop")


def test_each_flipped_bit_of_a_manifest_is_found() -> None:
    raw = encode_manifest(make_manifest(5, []))
    assert decode_manifest(raw, "here").epoch == 5

    for at in range(len(raw)):
        flipped = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        try:
            found = decode_manifest(flipped, "here")
        except CheckpointError:
            continue
        assert found == make_manifest(5, [])  # the bit was in what means nothing


def test_a_cut_off_manifest_is_damaged() -> None:
    raw = encode_manifest(make_manifest(5, []))
    for length in range(0, len(raw), 7):
        with pytest.raises(CheckpointDamagedError):
            decode_manifest(raw[:length], "here")


def test_a_manifest_of_a_later_version_is_refused() -> None:
    raw = msgspec.json.encode({"format": 99, "sha256": "", "manifest": {}})
    with pytest.raises(CheckpointError, match="newer version of Tidegate"):
        decode_manifest(raw, "here")


def _put(storage: CheckpointStorage, epoch: int, own: str, shared: tuple[tuple[int, str], ...]) -> None:
    files = []
    for name in own:
        storage.put(f"checkpoints/{epoch:08d}/files/{name}", name.encode())
        files.append(_ref(name, f"files/{name}"))
    files += [_ref(name, f"../{older:08d}/files/{name}") for older, name in shared]
    task = msgspec.structs.replace(_EMPTY, files=files)
    storage.put_manifest(make_manifest(epoch, [task]))


def _ref(name: str, path: str) -> FileRef:
    return FileRef(name=name, path=path, size=1, sha256=hashlib.sha256(name.encode()).hexdigest())


def _files(storage: CheckpointStorage) -> set[str]:
    found = [path.removeprefix("checkpoints/").lstrip("0") for path in storage.files()]
    return {path.replace("/files/", "/") for path in found}


_EMPTY = TaskSnapshot(
    service="count",
    number=0,
    marker=CommitMarker(lineage="line", run="1", inputs={}),
    lineage="line",
    offset=0,
    written_ms=0,
    store="rocksdb",
    files=[],
)


def test_a_stamp_is_that_of_one_manifest(storage: CheckpointStorage, tmp_path: Path) -> None:
    assert storage.fingerprint(7) is None
    assert storage.fingerprint("mine") is None
    make_checkpoint(storage, tmp_path, 7, {b"\x02a": b"1"})
    make_checkpoint(storage, tmp_path, 8, {b"\x02a": b"1"}, name="mine")
    stamps = {id_: storage.fingerprint(id_) for id_ in (7, "mine")}
    assert len({None, *stamps.values()}) == 3

    storage.delete_savepoint("mine")
    assert storage.fingerprint("mine") is None
    make_checkpoint(storage, tmp_path, 9, {b"\x02a": b"1"}, name="mine")

    assert storage.fingerprint(7) == stamps[7]
    assert storage.fingerprint("mine") not in (None, stamps["mine"])

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.errors import StorageFullError, StoreCorruptError, StoreError
from tidegate.state.base import StorePosition
from tidegate.state.rocksdb import RocksOptions, RocksStore, _translated

ALL = (b"", b"\xff\xff")
KEYS = 20_000


def at(offset: int) -> StorePosition:
    return StorePosition("lineage", offset, offset)


def key(number: int) -> bytes:
    return b"\x02%08d" % number


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "tasks" / "0"


@pytest.fixture
def filled(directory: Path) -> Path:
    """A closed store with one file of data."""
    values = random.Random(1)
    store = RocksStore(directory)
    store.apply([(key(n), values.randbytes(20)) for n in range(KEYS)], at(1))
    store.close()
    return directory


def test_a_closed_store_opens_as_it_was(directory: Path) -> None:
    store = RocksStore(directory)
    store.apply([(b"\x02a", b"1")], at(1))
    store.apply([(b"\x02b", b"2")], at(2))
    store.close()

    again = RocksStore(directory)
    assert list(again.scan(*ALL)) == [(b"\x02a", b"1"), (b"\x02b", b"2")]
    assert again.position == at(2)
    again.close()


def test_a_store_is_opened_once_at_a_time(directory: Path) -> None:
    store = RocksStore(directory)

    with pytest.raises(StoreError, match="LOCK") as caught:
        RocksStore(directory)

    assert not isinstance(caught.value, StoreCorruptError)
    store.close()


def test_a_closed_store_gives_a_clear_error(directory: Path) -> None:
    store = RocksStore(directory)
    store.close()

    for call in (lambda: store.get(b"\x02"), lambda: store.apply([], at(1)), store.flush, lambda: store.scan(*ALL)):
        with pytest.raises(StoreError, match="is closed"):
            call()


def test_a_scan_does_not_end_early_when_its_store_is_closed(filled: Path) -> None:
    store = RocksStore(filled)
    scan = store.scan(*ALL)
    next(scan)
    store.close()

    with pytest.raises(StoreError, match="closed during a scan"):
        list(scan)
    RocksStore(filled).close()  # and the scan does not hold the files


def test_a_wrong_argument_is_not_reported_as_corruption(directory: Path) -> None:
    store = RocksStore(directory)

    with pytest.raises(KeyError, match="only support bytes"):
        store.get(None)  # type: ignore[arg-type]
    store.close()


@pytest.mark.parametrize("reserved", [b"", b"\x00", b"\x00position"])
def test_no_change_reaches_the_stores_internal_keys(directory: Path, reserved: bytes) -> None:
    store = RocksStore(directory)

    with pytest.raises(ValueError, match="not the key of an entry"):
        store.apply([(b"\x02", b""), (reserved, b"nonsense")], at(1))

    assert store.position is None
    store.close()


def test_a_pickle_in_a_store_is_not_unpickled(directory: Path) -> None:
    store = RocksStore(directory)
    store.apply([(b"\x02a", pickle.dumps({"a": 1}))], at(1))
    store.close()

    again = RocksStore(directory)
    assert again.get(b"\x02a") == pickle.dumps({"a": 1})
    again.close()


# ------------------------------------------------------------------------------------------------------- corruption


def flip(path: Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 0xFF
    path.write_bytes(data)


def truncate(path: Path) -> None:
    overwrite(path, path.read_bytes()[: path.stat().st_size // 2])


def overwrite(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def one(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a data file is cut": lambda directory: truncate(one(directory, "*.sst")),
    "a data file is gone": lambda directory: one(directory, "*.sst").unlink(),
    "a byte of a data file is flipped": lambda directory: flip(one(directory, "*.sst"), 0.5),
    "the end of a data file is flipped": lambda directory: flip(one(directory, "*.sst"), 0.9999),
    "the manifest is empty": lambda directory: overwrite(one(directory, "MANIFEST-*"), b""),
    "the manifest is gone": lambda directory: one(directory, "MANIFEST-*").unlink(),
    "a byte of the manifest is flipped": lambda directory: flip(one(directory, "MANIFEST-*"), 0.3),
    "CURRENT is gone": lambda directory: (directory / "CURRENT").unlink(),
    "CURRENT is nonsense": lambda directory: overwrite(directory / "CURRENT", b"nonsense"),
}


def read_all(directory: Path) -> None:
    store = RocksStore(directory)
    try:
        assert sum(1 for _ in store.scan(*ALL)) == KEYS, "a scan must not end early in silence"
    finally:
        store.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_as_corruption_and_can_be_destroyed(filled: Path, damage: str) -> None:
    DAMAGES[damage](filled)

    with pytest.raises(StoreCorruptError, match="rebuilt from its changelog"):
        read_all(filled)

    RocksStore.destroy(filled)
    store = RocksStore(filled)
    assert store.position is None
    assert list(store.scan(*ALL)) == []
    store.close()


def test_a_read_of_a_damaged_block_fails_and_other_blocks_are_readable(filled: Path) -> None:
    flip(one(filled, "*.sst"), 0.5)
    store = RocksStore(filled)

    assert store.get(key(0)) is not None
    with pytest.raises(StoreCorruptError, match="checksum mismatch"):
        sum(store.get(key(number)) is None for number in range(KEYS))
    store.wipe()
    assert store.get(key(0)) is None
    store.apply([(key(0), b"again")], at(1))
    assert store.get(key(0)) == b"again"
    store.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_manifest_cut_anywhere_gives_corruption_or_an_earlier_state(directory: Path, seed: int) -> None:
    store = RocksStore(directory)
    for offset in range(1, 6):
        store.apply([(key(n), b"%d" % offset) for n in range(50)], at(offset))
        store.flush()
    store.close()
    manifest = one(directory, "MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[: random.Random(seed).randrange(manifest.stat().st_size)])

    try:
        store = RocksStore(directory)
    except StoreCorruptError:
        return
    expected = b"" if store.position is None else b"%d" % store.position.offset
    assert {value for _, value in store.scan(*ALL)} == ({expected} if expected else set())
    store.close()


@pytest.mark.parametrize(
    ("detail", "kind"),
    [
        ("IO error: No space left on device: While appending to file: /x/000012.sst", StorageFullError),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", StoreError),
        ("IO error: While open a file for appending: /x/000012.sst: Too many open files", StoreError),
        ("IO error: No such file or directory: While open a file: /x/000012.sst", StoreCorruptError),
        ("Corruption: block checksum mismatch", StoreCorruptError),
        ("Not implemented: unknown compression", StoreCorruptError),
    ],
)
def test_an_unfit_place_is_not_a_corrupt_store(detail: str, kind: type[Exception]) -> None:
    assert type(_translated(Exception(detail), Path("/x"))) is kind


def test_destroying_a_missing_store_is_allowed(directory: Path) -> None:
    RocksStore.destroy(directory)


# ---------------------------------------------------------------------------------------------------------- crashes

WRITER = """
import random, sys
from pathlib import Path
from tidegate.state.base import StorePosition
from tidegate.state.rocksdb import RocksOptions, RocksStore

directory, seed = Path(sys.argv[1]), int(sys.argv[2])
store = RocksStore(directory, options=RocksOptions(write_buffer_bytes=64 << 10))
print("open", flush=True)
offset = store.position.offset if store.position else 0
while True:
    offset += 1
    changes = random.Random(offset)
    store.apply(
        [(b"\\x02%d" % changes.randrange(500), changes.choice([None, changes.randbytes(100)])) for _ in range(50)],
        StorePosition("lineage", offset, offset),
    )
    if offset % 7 == 0:
        print(offset, flush=True)
"""


def fold(upto: int) -> dict[bytes, bytes]:
    """What the writer's changes up to an offset come to."""
    content: dict[bytes, bytes] = {}
    for offset in range(1, upto + 1):
        changes = random.Random(offset)
        for _ in range(50):
            name, value = b"\x02%d" % changes.randrange(500), changes.choice([None, changes.randbytes(100)])
            if value is None:
                content.pop(name, None)
            else:
                content[name] = value
    return content


def kill_after(lines: int, directory: Path) -> int:
    """Run the writer, kill it after so many lines of progress; the last offset that it reported."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), "0"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        reported = [writer.stdout.readline() for _ in range(lines)][-1]
        os.kill(writer.pid, signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    return int(reported)


def test_after_a_kill_a_store_equals_its_changes_up_to_its_position(directory: Path) -> None:
    lengths, survived = random.Random(7), []
    for _ in range(6):
        reported = kill_after(lengths.randrange(2, 80), directory)

        store = RocksStore(directory)
        offset = store.position.offset if store.position else 0
        assert dict(store.scan(*ALL)) == fold(offset)
        survived.append((offset, reported))
        store.close()

    assert any(offset > 0 for offset, _ in survived), "nothing was ever flushed: the test proves nothing"


# ----------------------------------------------------------------------------------------------------------- memory


def test_a_reopened_store_has_the_shared_cache_and_its_filters(filled: Path) -> None:
    options = RocksOptions(cache_bytes=5 << 20)
    for _ in range(2):
        store = RocksStore(filled, options=options)
        assert store._db.property_int_value("rocksdb.block-cache-capacity") == options.cache_bytes
        assert "filter_policy=bloomfilter" in max(filled.glob("OPTIONS-*")).read_text()
        store.close()


def test_idle_stores_cost_next_to_no_memory(tmp_path: Path) -> None:
    options = RocksOptions(write_buffers_bytes=4 << 20)
    stores = [RocksStore(tmp_path / str(number), options=options) for number in range(32)]
    for round_ in range(20):
        for store in stores:
            store.apply([(key(round_), b"")], at(round_))

    flushed = sum(1 for _ in tmp_path.glob("*/*.sst"))
    assert flushed == 0, "32 stores with 20 keys each are far below the budget for unflushed data"
    for store in stores:
        store.close()


def test_stores_share_one_budget_for_unflushed_data(tmp_path: Path) -> None:
    options = RocksOptions(write_buffers_bytes=2 << 20, write_buffer_bytes=64 << 20)
    stores = [RocksStore(tmp_path / str(number), options=options) for number in range(4)]
    for round_ in range(40):
        for store in stores:
            store.apply([(key(n), bytes(500)) for n in range(round_ * 100, round_ * 100 + 100)], at(round_))

    deadline = time.monotonic() + 10  # RocksDB flushes in the background
    while not list(tmp_path.glob("*/*.sst")):
        assert time.monotonic() < deadline, "8 MB of changes were kept within a budget of 2 MB"
        time.sleep(0.01)
    for store in stores:
        store.close()

"""A disk that fills up under the embedded log: a clear stop, no acknowledged append lost, a resume with free space."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.logs import read_all, values
from tidegate.errors import StorageFullError
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a small file system: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def numbered(number: int, count: int) -> list[NewRecord]:
    value = number.to_bytes(4, "big") + random.Random(number).randbytes(2000)
    return [(b"k", value, 0, ())] * count


async def numbers(log: EmbeddedLog, source: TopicPartition) -> list[int]:
    return [int.from_bytes((value or b"")[:4], "big") for value in values(await read_all(log, source))]


async def fill(log: EmbeddedLog) -> tuple[int, StorageFullError]:
    """Append until the disk is full. Returns how many transactions were acknowledged, and the error."""
    writer = await log.writer("w")
    for number in range(1, 100_000):
        try:
            await writer.append(
                {A0: [*numbered(number, 2), (b"k", os.urandom(20_000), 0, ())], A1: numbered(number, 1)}
            )
        except StorageFullError as error:
            return number - 1, error
    raise AssertionError("the disk was never full")


@pytest.mark.parametrize("write_buffer_bytes", [256 << 10, 64 << 20], ids=["while flushing", "in the write-ahead log"])
async def test_a_full_disk_stops_the_log_without_data_loss(small_disk: Path, write_buffer_bytes: int) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(14 * MIB))
    options = EmbeddedOptions(write_buffer_bytes=write_buffer_bytes)
    log = EmbeddedLog(small_disk / "data", options=options)
    await log.start()
    await log.create([TopicSpec(name="a", partitions=2)])
    acknowledged, error = await fill(log)
    assert str(small_disk) in str(error)
    assert acknowledged > 50
    with pytest.raises(StorageFullError):
        await (await log.writer("w")).append({A0: [(b"k", b"more", 0, ())]})
    await log.stop()

    filler.unlink()
    log = EmbeddedLog(small_disk / "data", options=options)
    await log.start()
    found = await numbers(log, A1)
    assert found == list(range(1, len(found) + 1))
    assert len(found) in (acknowledged, acknowledged + 1)  # the last may have been written, though not acknowledged
    assert (await numbers(log, A0))[::3] == (await numbers(log, A0))[1::3] == found
    await (await log.writer("w")).append({A0: [(b"k", b"more", 0, ())]})
    await log.stop()

"""Acknowledged appends are on disk. A killed process cannot show that, since the kernel keeps its writes: these tests
count syncs and check the order of system calls."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support.processes import ROOT
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog
from tidegate.logs.embedded.database import Changes

SOURCE = TopicPartition("t", 0)


class WatchedLog(EmbeddedLog):
    """Notes how many writes there were when the last sync began that is over, and in which place each task wrote."""

    async def start(self) -> None:
        await super().start()
        self.written = self.synced = 0
        self.places: dict[object, int] = {}
        write, sync = self.group_commit.write, self.group_commit.sync

        async def watched_write(changes: Changes) -> None:
            await write(changes)
            self.written += 1
            self.places[asyncio.current_task()] = self.written

        def watched_sync() -> None:
            covered = self.written
            time.sleep(0.002)  # others write meanwhile
            sync()
            self.synced = covered

        self.group_commit.write, self.group_commit.sync = watched_write, watched_sync  # type: ignore[method-assign]


async def test_no_transaction_is_acknowledged_before_a_sync_that_began_after_its_write(tmp_path: Path) -> None:
    log = WatchedLog(tmp_path)
    await log.start()
    await log.create([TopicSpec(name="t", partitions=1)])

    async def append(number: int) -> None:
        writer = await log.writer()
        await writer.append({SOURCE: [(b"k", b"%d" % number, 0, ())]})
        assert log.synced >= log.places[asyncio.current_task()]

    for number in range(10):
        before = log.syncs
        await append(number)
        assert log.syncs > before  # alone, each has its own
    transactions, syncs = log.transactions, log.syncs
    for _ in range(20):
        await asyncio.gather(*map(append, range(10)))
    assert log.transactions - transactions == 200
    assert log.syncs - syncs < 200  # together, they share them
    await log.stop()


def test_the_kernel_syncs_the_log_before_a_send_is_acknowledged(
    new_embedded_world: NewEmbeddedWorld, tmp_path: Path
) -> None:
    """As strace sees a real worker: the write of a record, then fdatasync of that file, then the acknowledgement."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace, which shows the order of writes and syncs: apt-get install strace")
    world = new_embedded_world("ledger")
    trace, acknowledged = tmp_path / "trace", tmp_path / "acknowledged"
    arguments = {"app": world.app, "feed": "tests.faults.support.feed:send_some"}
    command = [strace, "-f", "-y", "-s", "2000", "-o", str(trace), "-e", "trace=write,pwrite64,fdatasync,fsync"]
    environment = {**os.environ, **world.environment, "TIDEGATE_TEST_ACKNOWLEDGED": str(acknowledged)}
    worker = [sys.executable, "-m", "tests.faults.support.worker", json.dumps(arguments)]
    done = subprocess.run([*command, *worker], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr or not trace.exists():
        pytest.skip(f"strace cannot trace here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr

    ids = acknowledged.read_text().split()
    assert len(ids) == 40
    lines = trace.read_text().splitlines()
    for number in ids:
        check_order(lines, number)


def check_order(lines: list[str], number: str) -> None:
    """Find, in this order: the record in a write to the log, a whole fdatasync of the log, the acknowledgement."""
    record = rf'write\(\d+<[^>]*/log/(\d+\.log)>.*\\"id\\":{number}\b'
    written = next((index, match.group(1)) for index, line in enumerate(lines) if (match := re.search(record, line)))
    answered = next(index for index, line in enumerate(lines) if re.search(rf'/acknowledged>, "{number}\\n"', line))
    threads: set[str] = set()
    for line in lines[written[0] + 1 : answered]:
        thread = line.split()[0]
        if re.search(rf"fdatasync\(\d+<[^>]*/log/{written[1]}>", line):
            if "unfinished" not in line:
                return
            threads.add(thread)
        elif "fdatasync resumed" in line and thread in threads:
            return
    raise AssertionError(f"entry {number} was acknowledged before {written[1]} was synced")

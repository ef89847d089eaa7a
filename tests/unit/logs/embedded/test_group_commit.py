"""Durability: records are synced before they are acknowledged or visible."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.logs import new, read_all, values
from tidegate.errors import LogError, LogFailedError
from tidegate.faults import InjectedFault, arm, disarm, parse
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog
from tidegate.logs.embedded.database import Changes
from tidegate.logs.embedded.group_commit import GroupCommit

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    log = EmbeddedLog(tmp_path)
    await log.start()
    await log.create([TopicSpec(name="a", partitions=2)])
    yield log
    await log.stop()


class Gate:
    """Holds syncs back until a test lets them through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.waiting = threading.Event()
        original = GroupCommit.sync

        def sync(commits: GroupCommit) -> None:
            self.waiting.set()
            assert self.open.wait(10)
            original(commits)

        monkeypatch.setattr(GroupCommit, "sync", sync)


async def test_every_acknowledged_transaction_was_synced_after_it_was_written(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    write, sync = GroupCommit.write, GroupCommit.sync

    async def recorded_write(commits: GroupCommit, changes: Changes) -> None:
        await write(commits, changes)
        events.append("written")

    def recorded_sync(commits: GroupCommit) -> None:
        events.append("sync begins")
        sync(commits)
        events.append("synced")

    monkeypatch.setattr(GroupCommit, "write", recorded_write)
    monkeypatch.setattr(GroupCommit, "sync", recorded_sync)

    async def append(number: int) -> None:
        writer = await log.writer(f"w{number}")
        for _ in range(10):
            await asyncio.sleep(0.001 * number)
            written = asyncio.create_task(writer.append({A0: new(b"x")}))
            await asyncio.sleep(0)
            since = len(events)  # its write is before this point
            await written
            assert "synced" in _after(events[max(since - 1, 0) :], "sync begins")

    await asyncio.gather(*(append(number) for number in range(5)))
    assert log.transactions == 50


def _after(events: list[str], event: str) -> list[str]:
    return events[events.index(event) :] if event in events else []


async def test_no_reader_sees_a_record_before_it_is_synced(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    reader = log.reader()
    reader.assign({A0: 0})
    appending = asyncio.create_task((await log.writer()).append({A0: new(b"1")}))
    assert await asyncio.to_thread(gate.waiting.wait, 10)

    assert await reader.read(timeout=0.05) == []
    assert await log.end_offsets([A0]) == {A0: 0}
    assert not appending.done()

    gate.open.set()
    await appending
    assert [values(batch.records) for batch in await reader.read(timeout=1)] == [[b"1"]]


async def test_transactions_that_wait_together_share_a_sync(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    before = log.syncs
    gate = Gate(monkeypatch)
    writers = [await log.writer() for _ in range(20)]
    appending = [asyncio.create_task(writer.append({A0: new(b"x")})) for writer in writers]
    assert await asyncio.to_thread(gate.waiting.wait, 10)
    appending += [asyncio.create_task(writer.append({A1: new(b"y")})) for writer in writers]
    await asyncio.sleep(0.01)
    gate.open.set()
    await asyncio.gather(*appending)

    assert log.transactions == 40
    assert log.syncs - before == 2


async def test_a_failed_sync_fails_every_waiting_append_and_stops_the_log(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = [await log.writer() for _ in range(3)]

    def broken(commits: GroupCommit) -> None:
        raise OSError("the disk is on fire")

    monkeypatch.setattr(GroupCommit, "sync", broken)
    results = await asyncio.gather(*(writer.append({A0: new(b"x")}) for writer in writers), return_exceptions=True)

    assert all(isinstance(result, LogFailedError) and "on fire" in str(result) for result in results)
    assert await log.end_offsets([A0]) == {A0: 0}
    monkeypatch.undo()
    with pytest.raises(LogFailedError, match="on fire"):
        await writers[0].append({A0: new(b"y")})


async def test_a_transaction_with_a_lost_response_is_found_in_the_log(log: EmbeddedLog) -> None:
    writer = await log.writer("w")
    arm(parse("log.written:raise@1"))
    try:
        with pytest.raises(InjectedFault):
            await writer.append({A0: new(b"1"), A1: new(b"1")})
    finally:
        disarm()
    await log.writer("w")
    assert values(await read_all(log, A0)) == values(await read_all(log, A1)) == [b"1"]


async def test_a_stopped_log_gives_a_clear_error(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    with pytest.raises(LogError, match="not running"):
        await log.create([TopicSpec(name="a", partitions=1)])


async def test_appends_wait_while_rocksdb_catches_up(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    stalls = 3

    class Stalling:
        """A database that has to catch up first, and says it as rocksdict does."""

        def __getattr__(self, name: str) -> object:
            return getattr(database, name)

        def write(self, batch: object, options: object) -> None:
            nonlocal stalls
            if stalls > 0:
                stalls -= 1
                raise Exception("Result incomplete: Write stall")
            database.write(batch, options)  # type: ignore[arg-type]

    database = log.database
    monkeypatch.setattr(log.group_commit, "_database", Stalling())
    writers = [await log.writer() for _ in range(5)]
    await asyncio.gather(*(writer.append({A0: new(b"%d" % n)}) for n, writer in enumerate(writers)))

    assert stalls == 0
    records = await read_all(log, A0)
    assert [record.offset for record in records] == [0, 2, 4, 6, 8]
    assert values(records) == [b"0", b"1", b"2", b"3", b"4"]


SYNCED_CHILD = """
import asyncio, os, sys
from pathlib import Path
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog

async def main():
    log = EmbeddedLog(Path(sys.argv[1]))
    await log.start()
    await log.create([TopicSpec(name="a", partitions=1)])
    writer = await log.writer()
    for number in range(5):
        await writer.append({TopicPartition("a", 0): [(b"k", b"TRANSACTION-%d" % number, 0, ())]})
        os.write(1, b"ACKNOWLEDGED-%d" % number)
    await log.stop()

asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
def test_the_kernel_syncs_between_the_write_and_the_acknowledgement(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-s", "256", "-o", str(trace), "-e", "trace=write,fdatasync,fsync"]
    command += [sys.executable, "-c", SYNCED_CHILD, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr

    story = []
    for line in trace.read_text().splitlines():
        if found := re.search(r'write\(\d+<.*/log/\d+\.log>, ".*TRANSACTION-(\d)', line):
            story.append(f"written {found[1]}")
        elif re.search(r"fdatasync\(\d+<.*/log/\d+\.log>(\)| <unfinished)", line):
            story.append("synced")
        elif found := re.search(r'write\(1<.*>, "ACKNOWLEDGED-(\d)', line):
            story.append(f"acknowledged {found[1]}")
    for number in range(5):
        between = story[story.index(f"written {number}") : story.index(f"acknowledged {number}")]
        assert "synced" in between, story

"""Reading beside the owner, from another process, whatever the owner goes through."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.contract.logs import new, read_all, values
from tests.faults.embedded_owner import BRIEF, OPTIONS, PLAIN, check
from tidegate.errors import LogUnavailableError, OffsetOutOfRangeError, UnknownTopicError
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog, LogObserver
from tidegate.logs.embedded.group_commit import GroupCommit

ROOT = Path(__file__).parents[2]
A0 = TopicPartition("a", 0)


class Owner:
    """A process that owns the log, and what it has acknowledged."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.acknowledged = 0

    async def wait_for(self, number: int) -> None:
        while self.acknowledged < number:
            await self._read_line()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        yield
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        self.process.kill()
        while await self._read_line():
            pass
        self.process.wait()

    async def _read_line(self) -> bytes:
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        if line.startswith(b"ack ") and line.endswith(b"\n"):
            self.acknowledged = int(line[4:])
        return line


@contextmanager
def owner_of(directory: Path) -> Iterator[Owner]:
    environment = os.environ | {"TIDEGATE_FAULTS": ""}
    command = [sys.executable, "-m", "tests.faults.embedded_owner", str(directory)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield Owner(process)
        finally:
            process.kill()


async def test_an_observer_survives_killed_and_restarted_owners(tmp_path: Path) -> None:
    with owner_of(tmp_path) as owner:
        await owner.wait_for(1)
        await owner.kill()
    observer = LogObserver(tmp_path)
    await observer.start()
    reader = observer.reader()
    reader.assign(dict.fromkeys(PLAIN, 0))
    seen: dict[TopicPartition, list[int]] = defaultdict(list)
    acknowledged = 0

    async def read() -> bool:
        batches = await reader.read(timeout=0.02)
        for batch in batches:
            seen[batch.source] += [json.loads(record.value or b"")[0] for record in batch.records]
        return bool(batches)

    async def read_until(number: int) -> None:
        async with asyncio.timeout(20):
            while not all(seen[source] and seen[source][-1] >= number for source in PLAIN):
                await read()

    for _ in range(3):
        with owner_of(tmp_path) as owner:
            for _ in range(15):
                await owner.wait_for(max(owner.acknowledged, acknowledged) + 20)
                await read()
            await owner.kill()
            acknowledged = owner.acknowledged
        await read_until(acknowledged)  # though nobody owns it now
    while await read():
        pass
    await observer.refresh()
    assert await check(observer, acknowledged) >= acknowledged > 900
    for source in PLAIN:
        assert seen[source] == [number for number in range(1, seen[source][-1] + 1) for _ in range(number % 20 + 1)]
    await observer.stop()


async def test_an_observer_sees_complete_transactions_only(tmp_path: Path) -> None:
    """A check reads all that there is. If the owner went on during each, it would be ahead by more every time."""
    with owner_of(tmp_path) as owner:
        await owner.wait_for(1)
        observer = LogObserver(tmp_path)
        await observer.start()
        checked = set()
        for number in range(30):
            await owner.wait_for(owner.acknowledged + 5)
            await observer.refresh()
            with owner.stopped() if number % 6 else nullcontext():
                checked.add(await check(observer, owner.acknowledged))
        await observer.stop()
        assert len(checked) > 10


async def test_an_observer_that_falls_behind_the_retention_gets_an_error(tmp_path: Path) -> None:
    with owner_of(tmp_path) as owner:
        await owner.wait_for(10)
        observer = LogObserver(tmp_path)
        await observer.start()
        reader = observer.reader()
        reader.assign({BRIEF: (await observer.start_offsets([BRIEF]))[BRIEF]})
        assert await reader.read(max_records=1)
        await owner.wait_for(600)
        await observer.refresh()
        reader.assign({BRIEF: 1})
        with pytest.raises(OffsetOutOfRangeError):
            await reader.read(timeout=5)
        await observer.stop()


async def test_an_observer_sees_synced_records_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EmbeddedLog(tmp_path, options=OPTIONS)
    await log.start()
    await log.create([TopicSpec(name="a", partitions=1)])
    await (await log.writer()).append({A0: new(b"synced")})
    observer = LogObserver(tmp_path)
    await observer.start()
    stopped = asyncio.Event()

    async def publish(*_: object) -> None:
        await stopped.wait()

    monkeypatch.setattr(GroupCommit, "_publish", publish)
    appending = asyncio.create_task((await log.writer()).append({A0: new(b"written")}))
    await asyncio.sleep(0.05)
    await observer.refresh()
    assert values(await read_all(observer, A0)) == [b"synced"]
    stopped.set()
    appending.cancel()
    await observer.stop()
    await log.stop()


async def test_an_observer_needs_a_log(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailableError, match="no log in"):
        await LogObserver(tmp_path).start()


async def test_an_observer_sees_topics_created_and_deleted_later(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path, options=OPTIONS)
    await log.start()
    observer = LogObserver(tmp_path)
    await observer.start()
    assert await observer.topics() == {}
    spec = TopicSpec(name="a", partitions=1, retention_ms=5)
    await log.create([spec])
    await observer.refresh()
    assert await observer.topics() == {"a": spec}
    assert await observer.end_offsets([A0]) == {A0: 0}
    await log.delete(["a"])
    await observer.refresh()
    with pytest.raises(UnknownTopicError):
        await observer.end_offsets([A0])
    await observer.stop()
    await log.stop()


async def test_an_observer_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    log = EmbeddedLog(tmp_path / "data", options=OPTIONS)
    await log.start()
    observer = LogObserver(tmp_path / "data")
    await observer.start()
    assert list(scratch.iterdir())
    await observer.stop()
    assert not list(scratch.iterdir())
    await log.stop()

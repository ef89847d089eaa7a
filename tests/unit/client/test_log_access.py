"""Processes other than the worker reach the log through the worker, or own it for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import running
from tidegate import App, Context, ValueState
from tidegate.client.log_access import LogAccess
from tidegate.errors import LogInUseError, PartitionCountError
from tidegate.host.host import Host
from tidegate.owner_rpc.protocol import Entries, Reset

app = App("reached")
words = app.topic("words", value_type=str, partitions=2)


@app.process(words)
async def counter(ctx: Context, word: str, count: ValueState[int | None]) -> None:
    count.value = (count.value or 0) + 1


def access_to(directory: Path, lock_wait: float = 10.0) -> LogAccess:
    return LogAccess(app.define(), {"data": directory}, lock_wait=lock_wait)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    access = access_to(tmp_path)

    assert not access.exists
    assert not access.directory.exists()


async def test_without_a_worker_the_log_is_locked_and_released(tmp_path: Path) -> None:
    access = access_to(tmp_path)
    async with access.opened() as operations:
        await access.create_topics()
        await operations.append("words", [(0, b"b", b'"x"', 1, [])])

    async with running(app, tmp_path, until_end=True) as host:
        await host.finished.wait()
        async with access.opened() as operations:
            assert (access.owns, access.owner is None) == (False, False)
            (entry,) = (await operations.entries(Entries("counter", "count"))).page.entries
            assert (entry.key, entry.value) == (b"b", b"1")

    async with access.opened() as operations:  # the same without it
        assert (access.owns, access.owner) == (True, None)
        for _ in range(2):
            assert (await operations.entries(Entries("counter", "count"))).page.entries == [entry]
        assert await operations.services() != []


async def test_it_waits_for_an_owner_that_goes_or_answers(tmp_path: Path) -> None:
    first, second = access_to(tmp_path), access_to(tmp_path)
    await first.operations()
    waiting = asyncio.create_task(second.operations())
    await asyncio.sleep(0.1)
    assert not waiting.done()

    await first.release()
    await waiting
    assert second.owns
    await second.release()


async def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    first = access_to(tmp_path)
    await first.operations()

    with pytest.raises(LogInUseError):
        await access_to(tmp_path, lock_wait=0.1).operations()

    await first.release()


async def test_a_worker_waits_for_a_command_to_release_the_log(tmp_path: Path) -> None:
    access = access_to(tmp_path)
    await access.operations()
    starting = asyncio.create_task(asyncio.wait_for(Host(app.define, flags={"data": tmp_path}).start(), 10))
    await asyncio.sleep(0.1)
    assert not starting.done()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await access.release()

    async with running(app, tmp_path):
        pass


async def test_an_impossible_reset_removes_nothing(tmp_path: Path) -> None:
    access = access_to(tmp_path)
    async with access.opened() as operations:
        await access.create_topics()
        await operations.append("words", [(0, b"b", b'"x"', 1, [])])
    async with running(app, tmp_path, until_end=True) as host:
        await host.finished.wait()
    changed = App("reached")

    @changed.process(changed.topic("words", value_type=str, partitions=3), name="counter")
    async def again(ctx: Context, word: str, count: ValueState[int | None]) -> None:
        """With more partitions."""

    grown = LogAccess(changed.define(), {"data": tmp_path})
    async with grown.opened() as operations:
        with pytest.raises(PartitionCountError):
            await operations.reset(Reset())
    async with access.opened() as operations:
        assert len((await operations.entries(Entries("counter", "count"))).page.entries) == 1
    async with grown.opened() as operations:
        assert "words" in (await operations.reset(Reset(everything=True))).emptied

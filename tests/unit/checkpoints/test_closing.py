"""A task that closes while it enters an epoch: its snapshot releases the store before the store is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from tests.unit.checkpoints.test_giving_up import begin
from tests.unit.checkpoints.test_protocol import make_app
from tidegate.checkpoints.snapshot.threads import run_to_completion
from tidegate.engine.runtime.snapshots import Cut
from tidegate.engine.task import Task
from tidegate.testing import AppHarness


async def by_its_last_commit(task: Task) -> None:
    await task.close(commit=True)


async def by_the_commit_under_way(task: Task) -> None:
    task.start_commit()
    await task.close(commit=False)


@pytest.mark.parametrize("close", [by_its_last_commit, by_the_commit_under_way])
def test_a_snapshot_that_a_last_commit_begins_is_over_before_the_store_is_closed(
    close: Callable[[Task], Coroutine[None, None, None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=tmp_path / "stores") as harness:
        harness.send("events", "go", key="k")
        harness.run(begin(harness))
        harness.run(harness.engine.poll_control(timeout=0))
        task = harness.engine.tasks["first.0"]
        assert task.epochs.due
        begun: list[Cut] = []
        left: list[int] = []
        take, close_store = harness.engine.snapshots.take, task.store.close

        async def taking(cut: Cut) -> None:
            begun.append(cut)
            await take(cut)

        def closing() -> None:
            left.append(len(task.epochs.snapshotting))
            close_store()

        monkeypatch.setattr(harness.engine.snapshots, "take", taking)
        monkeypatch.setattr(task.store, "close", closing)
        harness.run(close(task))

        assert len(begun) == 1
        assert left == [0]


def test_a_thread_is_waited_for_however_often_that_is_cancelled() -> None:
    over, gate = threading.Event(), threading.Event()

    def work() -> None:
        gate.wait(30)
        over.set()

    async def run() -> None:
        waiting = asyncio.ensure_future(run_to_completion(asyncio.to_thread(work)))
        for _ in range(3):
            await asyncio.sleep(0.01)
            waiting.cancel()
        await asyncio.sleep(0.01)
        assert not waiting.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert over.is_set()

    try:
        asyncio.run(run())
    finally:
        gate.set()

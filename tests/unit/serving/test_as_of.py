"""State as it was: what a worker that was killed has left is removed before anything is fetched."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import running
from tidegate import App, Context, ValueState
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.serving import as_of as history_module
from tidegate.serving.as_of import CheckpointHistory

app = App("past")
words = app.topic("words", value_type=str, partitions=2)


@app.process(words)
async def counter(ctx: Context, word: str, count: ValueState[int | None]) -> None:
    count.value = (count.value or 0) + 1


async def test_two_concurrent_clients_after_a_crash_both_find_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(app, tmp_path) as host:
        await host.checkpoint("before")
        history = CheckpointHistory(host)
        (history._directory / "left").mkdir(parents=True)

        def slowly(directory: Path, *options: Any, **more: Any) -> None:
            if directory == history._directory:
                time.sleep(0.3)
            shutil.rmtree(directory, *options, **more)

        monkeypatch.setattr(history_module, "shutil", type("Slow", (), {"rmtree": staticmethod(slowly)}))
        service = host.plan.services["counter"]

        async def look(number: int) -> list[int]:
            async with history.at("before", service, [number]) as past:
                return [view.number for view in past.views if view.store.position is not None]

        assert list(await asyncio.gather(look(0), look(1))) == [[0], [1]]
        assert len(list(history._directory.iterdir())) == 2
        await history.close()


async def test_repeated_reads_load_a_manifest_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(app, tmp_path) as host:
        await host.checkpoint("before")
        await host.checkpoint()
        read: list[str] = []
        before, leaders = CheckpointStorage.manifest_in, await host.checkpoints.storage()

        def counted(self: CheckpointStorage, folder: str) -> Manifest:
            if self is not leaders:  # it looks for what can be deleted, perhaps only now
                read.append(folder)
            return before(self, folder)

        monkeypatch.setattr(CheckpointStorage, "manifest_in", counted)
        history = CheckpointHistory(host)
        for _ in range(3):
            assert [one.name for one in await history.savepoints()] == ["before"]
            assert len(await history.checkpoints()) == 1
        assert len(read) == 2
        await history.close()

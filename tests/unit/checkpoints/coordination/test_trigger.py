"""Requested checkpoints: by the worker itself, by another process, by a command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tidegate import App, Context, ValueState
from tidegate.client.log_access import LogAccess
from tidegate.errors import CheckpointFailedError, NoWorkerError, RefusedError
from tidegate.host.host import Host
from tidegate.owner_rpc.client import connect
from tidegate.owner_rpc.protocol import TakeCheckpoint
from tidegate_app.actions.checkpoint import completion_text, list_checkpoints, row, take_checkpoint


def make_app() -> App:
    app = App("asked", partitions=1)

    @app.process(app.topic("events"), name="count")
    async def count(ctx: Context, event: int, seen: ValueState[int | None]) -> None:
        seen.value = (seen.value or 0) + 1

    return app


@asynccontextmanager
async def worker(data: Path, **flags: object) -> AsyncIterator[Host]:
    host = Host(make_app().define, flags={"data": data, **flags})
    await host.start()
    running = asyncio.ensure_future(host.run())
    try:
        yield host
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await host.stop()


async def test_a_worker_is_asked_over_its_socket(tmp_path: Path) -> None:
    async with worker(tmp_path) as host:
        connection = await connect(host.directory)
        assert connection is not None
        first = await connection.checkpoint(TakeCheckpoint())
        second = await connection.checkpoint(TakeCheckpoint("mine"))
        with pytest.raises(RefusedError, match="already"):
            await connection.checkpoint(TakeCheckpoint("mine"))
        await connection.close()

        assert (first.epoch, second.epoch) == (1, 2)
        storage = await host.checkpoints.storage()
        assert (storage.checkpoints(), storage.savepoints()) == ([1], ["mine"])
        assert host.checkpoints.status.healthy


async def test_commands_trigger_and_list_checkpoints(tmp_path: Path) -> None:
    definition, flags = make_app().define(), {"data": str(tmp_path)}
    assert list_checkpoints(definition, flags)[1] == []
    async with worker(tmp_path):
        found = await take_checkpoint(definition, flags)
    assert found["epoch"] == 1
    assert "Checkpoint 1 is complete" in completion_text(found)
    assert [row(listed)[0] for listed in list_checkpoints(definition, flags)[1]] == ["1"]
    (tmp_path / "asked/checkpoints/00000001/manifest.json").write_text("{}")
    assert "damaged" in row(list_checkpoints(definition, flags)[1][0])[1]


async def test_without_a_worker_a_checkpoint_is_refused(tmp_path: Path) -> None:
    access = LogAccess(make_app().define(), {"data": str(tmp_path)})
    async with access.opened() as operations:
        await access.create_topics()
        with pytest.raises(NoWorkerError, match="tidegate worker"):
            await operations.checkpoint(TakeCheckpoint())


async def test_a_checkpoint_that_times_out_is_aborted_and_reported(tmp_path: Path) -> None:
    """The storage is there, but a file is in the way of the app's folder: nothing can be put."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "asked").write_text("in the way")
    async with worker(tmp_path / "data", checkpoint_storage=str(place)) as host:
        with pytest.raises(CheckpointFailedError, match="cannot be used"):
            await host.checkpoint()
        await _until(lambda: not host.checkpoints.status.healthy)
        samples = {
            sample.name: sample.value
            for metric in host.engine.metrics.registry.collect()
            for sample in metric.samples
            if "checkpoint" in sample.name and sample.labels.get("outcome") != "complete"
        }
        assert samples["tidegate_checkpoint_failures"] >= 1
        assert samples["tidegate_checkpoints_total"] >= 1
        (place / "asked").unlink()
        await host.checkpoint()
        await _until(lambda: host.checkpoints.status.healthy)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)

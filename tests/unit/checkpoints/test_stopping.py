"""Stopping with a savepoint: handlers end, and no record is processed that the savepoint does not contain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from tidegate import App, Context, Default, ValueState
from tidegate.checkpoints.coordination.trigger import request_checkpoint
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.engine.formats.barrier import CheckpointRecord, checkpoint_record
from tidegate.errors import CheckpointFailedError, CheckpointStorageError
from tidegate.testing import AppHarness

gates: list[asyncio.Event] = []


def make_app() -> App:
    app = App("app", partitions=2, drain_seconds=30.0)
    events, done = app.topic("events", value_type=str), app.topic("done", value_type=str)

    @app.process(events, to=done)
    async def service(ctx: Context, event: str, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.value += 1
        if event == "wait":
            gates.append(asyncio.Event())
            await gates[-1].wait()
        ctx.emit(event)

    return app


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AppHarness]:
    gates.clear()
    with AppHarness(make_app(), checkpoints=tmp_path) as made:
        yield made


async def steps(harness: AppHarness, asking: asyncio.Future[int], count: int | None) -> None:
    """So many, or until it is answered: uploads take their time."""
    async with asyncio.timeout(60):
        while not asking.done() and count != 0:
            await harness.step_checkpoint()
            await harness.engine.read_once()
            await harness.engine.work_once()
            await asyncio.sleep(0.001)
            count = None if count is None else count - 1


def stop(harness: AppHarness, name: str = "last") -> asyncio.Future[int]:
    async def ask() -> asyncio.Future[int]:
        return asyncio.ensure_future(
            request_checkpoint(harness.log, "app", harness.clock, name=name, stop=True, timeout=60)
        )

    return harness.run(ask())


def drive(harness: AppHarness, asking: asyncio.Future[int], count: int | None = None) -> None:
    harness.run(steps(harness, asking, count))


def handled(harness: AppHarness, key: Any) -> int:
    found: int | None = harness.state("service", "seen", key)
    return found or 0


def test_no_record_is_handled_after_the_final_savepoint(harness: AppHarness) -> None:
    harness.send("events", "a", key="k")
    asking = stop(harness)
    drive(harness, asking)
    assert asking.done()
    harness.send("events", "b", key="k", settle=False)

    async def try_to_work() -> None:
        for _ in range(20):
            await harness.engine.read_once()
            await harness.engine.work_once()
        await harness.engine.commit_all()

    harness.run(try_to_work())
    assert handled(harness, "k") == 1
    assert harness.outputs("done") == ["a"]
    harness.restore("last")
    assert handled(harness, "k") == 2
    assert harness.outputs("done") == ["b"]


def test_stopping_with_a_savepoint_finishes_running_handlers_first(harness: AppHarness) -> None:
    harness.send("events", "wait", key="k", settle=False)
    harness.settle(wait=False)
    asking = stop(harness)
    drive(harness, asking, 50)
    assert not asking.done()
    harness.call(gates[0].set)
    drive(harness, asking)
    assert asking.done()
    harness.restore("last")
    assert handled(harness, "k") == 1  # it is in the savepoint, and is not begun again
    assert len(gates) == 1


def test_stopping_with_a_savepoint_waits_for_handlers_until_the_timeout(harness: AppHarness) -> None:
    harness.send("events", "wait", key="k", settle=False)
    harness.send("events", "a", key="other", settle=False)
    harness.settle(wait=False)
    asking = stop(harness)
    drive(harness, asking, 50)
    assert not asking.done()
    harness.clock.advance(31)
    drive(harness, asking)
    assert asking.done()
    harness.restore("last", settle=False)
    harness.settle(wait=False)
    assert len(gates) == 2  # it is begun again
    harness.call(gates[1].set)
    harness.settle()
    assert (handled(harness, "k"), handled(harness, "other")) == (1, 1)


def test_a_handler_that_ends_after_the_last_commit_counts_as_uncommitted(harness: AppHarness) -> None:
    harness.send("events", "wait", key="k", settle=False)
    harness.settle(wait=False)
    (busy,) = (name for name, task in harness.engine.tasks.items() if task.invoker.waiting)
    asking = stop(harness)
    drive(harness, asking, 50)
    harness.clock.advance(31)
    drive(harness, asking)

    async def end() -> None:
        gates[0].set()
        await harness.engine.drain(5)
        await harness.engine.close_tasks(commit=True)

    harness.run(end())
    assert set(harness.engine.uncommitted) == {busy}


def test_the_app_continues_if_the_final_savepoint_fails(harness: AppHarness) -> None:
    harness.send("events", "a", key="k")
    for task in harness.engine.tasks.values():
        task.epochs.move_to(7, stop=True)
    harness.send("events", "b", key="k", settle=False)

    async def give_up() -> None:
        record = CheckpointRecord(run="1", epoch=7, state="aborted", started_ms=0, stop=True)
        writer = await harness.log.writer()
        await writer.append({harness.engine.plan.control: [checkpoint_record(record, 0)]})
        await writer.close()

    harness.settle()
    assert handled(harness, "k") == 1
    harness.run(give_up())
    harness.settle()
    assert handled(harness, "k") == 2


class LostAnswers:
    """A storage that keeps a manifest, and does not say so; and then perhaps does not find it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, unreadable: int = 0) -> None:
        self.lost, self._unreadable = 0, unreadable
        put, manifest = CheckpointStorage.put_manifest, CheckpointStorage.manifest

        def put_and_fail(storage: CheckpointStorage, made: Manifest) -> None:
            put(storage, made)
            self.lost += 1
            raise CheckpointStorageError(storage.url, "the connection was lost")

        def not_yet(storage: CheckpointStorage, id_: str | int) -> Manifest:
            if self.lost and self._unreadable:
                self._unreadable -= 1
                raise CheckpointStorageError(storage.url, "it does not answer")
            return manifest(storage, id_)

        monkeypatch.setattr(CheckpointStorage, "put_manifest", put_and_fail)
        monkeypatch.setattr(CheckpointStorage, "manifest", not_yet)


def test_a_complete_savepoint_stops_the_app_despite_a_storage_error(
    harness: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LostAnswers(monkeypatch)
    harness.send("events", "a", key="k")
    asking = stop(harness)
    drive(harness, asking)

    assert storage.lost == 1
    assert harness.run(asyncio.wait_for(asking, 1)) > 0
    assert harness.engine._control_listener.stopped


def test_a_stop_request_fails_if_the_app_kept_running(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    LostAnswers(monkeypatch, unreadable=1)
    harness.send("events", "a", key="k")
    asking = stop(harness)
    drive(harness, asking)

    assert not harness.engine._control_listener.stopped
    with pytest.raises(CheckpointFailedError, match="keeps running"):
        harness.run(asyncio.wait_for(asking, 1))

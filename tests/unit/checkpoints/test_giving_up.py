"""Checkpoints that cannot complete: they are aborted with the reason, and the next one succeeds."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.checkpoints.test_protocol import Look, make_app, restarted_without_state
from tidegate.checkpoints.control_messages import REQUESTS, Request
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.errors import CheckpointFailedError, LogUnavailableError
from tidegate.testing import AppHarness, arm, disarm, parse


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    disarm()
    yield
    disarm()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AppHarness]:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept") as made:
        yield made


async def begin(harness: AppHarness) -> None:
    """The barrier is in the log; no task has heard of it."""
    assert harness.checkpoints is not None
    coordinator = harness.checkpoints.coordinator
    await coordinator.step()
    await coordinator._begin("", None)


async def until_decided(harness: AppHarness) -> str:
    assert harness.checkpoints is not None
    async with asyncio.timeout(30):
        while harness.checkpoints.coordinator.ledger.under_way is not None:
            await harness.step_checkpoint()
            await asyncio.sleep(0.001)  # the threads that upload need Python's lock
    await harness.engine.poll_control(timeout=0)
    assert harness.checkpoints.latest is not None
    return f"{harness.checkpoints.latest.state}: {harness.checkpoints.latest.reason}"


def test_after_the_timeout(harness: AppHarness) -> None:
    harness.run(begin(harness))
    harness.clock.advance(301)
    assert harness.checkpoints is not None
    harness.run(harness.checkpoints.coordinator.step())

    assert harness.run(until_decided(harness)).startswith(
        "aborted: time is up, and these tasks have not reported: first.0"
    )
    assert not harness.checkpoints.status.healthy
    assert harness.checkpoint().epoch == 2
    assert harness.checkpoints.status.healthy


def test_when_a_task_is_opened_again_before_it_has_reported(harness: AppHarness) -> None:
    harness.run(begin(harness))
    harness.run(reopen_in_the_middle(harness))

    assert "first.0 was opened again" in harness.run(until_decided(harness))
    assert harness.checkpoint().epoch == 2


async def reopen_in_the_middle(harness: AppHarness) -> None:
    """All tasks enter the epoch; one loses its connection at once."""
    await harness.engine.poll_control(timeout=0)
    for task in list(harness.engine.tasks.values()):
        await task.commit()
    victim = harness.engine.tasks["first.0"]
    assert victim.epochs.snapshotting
    victim.invoker.failure = LogUnavailableError("torn off")
    assert harness.engine._task_manager.reopen(victim)
    await harness.engine._task_manager.wait_until_open()


def test_a_task_opened_before_the_epoch_takes_part(harness: AppHarness) -> None:
    harness.run(begin(harness))
    harness.crash()

    assert harness.run(until_decided_by_next_leader(harness)).startswith("aborted: its leader is gone")
    assert harness.checkpoint().epoch == 2


async def until_decided_by_next_leader(harness: AppHarness) -> str:
    assert harness.checkpoints is not None
    await harness.checkpoints.coordinator.step()
    return await until_decided(harness)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_storage_fails_only_the_checkpoint(
    harness: AppHarness, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The storage's own error, wherever it comes from."""

    def full(*_: object) -> None:
        raise OSError(number, "no room")

    harness.send("events", "go", key="k")
    assert harness.checkpoints is not None
    storage = harness.run(harness.checkpoints.storage())
    with monkeypatch.context() as broken:
        broken.setattr(storage._fs, "put_file", full)
        with pytest.raises(CheckpointFailedError, match="no room"):
            harness.checkpoint()
        harness.send("events", "go", key="k")

    assert harness.state("second", "seen", "k") == 2
    assert harness.checkpoints.status.failures == 3, "it is tried three times"
    assert storage.epochs() in ([], [3]), "each attempt removes what the one before has left"
    assert harness.checkpoint().epoch == 4
    harness.settle()
    assert storage.epochs() == [4], "what was given up is swept"


def test_an_aborted_savepoint_leaves_no_files(
    harness: AppHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    harness.send("events", "go", key="k")
    with monkeypatch.context() as broken:
        broken.setattr("tidegate.checkpoints.snapshot.snapshotter.encode_task", lambda _: 1 / 0)
        with pytest.raises(CheckpointFailedError):
            harness.checkpoint("mine")
    left = tmp_path / "kept" / "pair" / "savepoints" / "mine"
    assert [path.name for path in left.iterdir()] == ["3"], "the last attempt's"
    harness.checkpoint()
    assert not left.exists() or not list(left.iterdir())
    assert harness.checkpoint("mine").name == "mine"


def test_files_that_the_storage_has_lost_are_uploaded_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By a rule that deletes what is old, for example. Otherwise no later checkpoint would be whole."""
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=tmp_path / "stores") as harness:
        harness.send_many("events", ["go"] * 300, key=lambda _: "k")
        whole = harness.checkpoint()
        lost = next((tmp_path / "kept").rglob("*.sst"))
        lost.unlink()
        after = harness.checkpoint()
        assert "has lost 1 of its files" in caplog.text
        assert lost.name in caplog.text
        assert after.uploaded >= whole.uploaded // 2
        assert not any(path.startswith("..") for path in after.paths)
        assert Look(harness, after, tmp_path).count("second", "k") == 300
        assert any(path.startswith("..") for path in harness.checkpoint().paths), "and then shared again"


def test_an_expired_request_of_a_dead_client_is_not_executed_later(harness: AppHarness) -> None:
    """A worker that starts the next day would stop with a savepoint of a client that has ended."""
    assert harness.checkpoints is not None
    control, now = harness.engine.plan.control, harness.clock.now()
    request = Request(name="stale", stop=True, asked_ms=now, until_ms=now + 1000)

    async def ask() -> None:
        writer = await harness.log.writer()
        await writer.append({control: [REQUESTS.record("dead", request, now)]})

    harness.run(ask())
    harness.clock.advance(2)
    coordinator = harness.checkpoints.coordinator
    while harness.run(coordinator.step()):
        pass
    assert coordinator.ledger.requests == {}
    assert coordinator.ledger.latest is None, "nothing was begun"
    assert harness.checkpoint("fresh").name == "fresh"


def test_a_manifest_that_was_put_when_time_was_up_counts(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that puts it cannot be stopped: what is decided follows from whether it is there."""
    put = CheckpointStorage.put_manifest

    def slowly(self: CheckpointStorage, manifest: Manifest) -> None:
        time.sleep(0.5)
        put(self, manifest)

    monkeypatch.setattr(CheckpointStorage, "put_manifest", slowly)
    harness.run(begin(harness))
    assert harness.checkpoints is not None
    coordinator = harness.checkpoints.coordinator
    finish = coordinator._try_to_finish
    monkeypatch.setattr(coordinator, "_try_to_finish", lambda barrier, _: finish(barrier, 0.2))

    assert harness.run(until_decided(harness)).startswith("complete")
    assert harness.checkpoints.status.last_complete is not None


@pytest.mark.parametrize("point", ["snapshot.writing", "snapshot.uploading", "snapshot.uploaded"])
def test_a_task_that_fails_on_the_way_reports_it(harness: AppHarness, point: str) -> None:
    arm(parse(f"{point}:raise@1"))
    assert harness.checkpoint().epoch == 2, "the second attempt"
    assert harness.checkpoints is not None
    assert harness.checkpoints.status.last_failed is not None
    harness.send("events", "go", key="k")
    assert harness.state("second", "seen", "k") == 1


def test_any_storage_will_do(url: str, tmp_path: Path) -> None:
    with AppHarness(make_app(), checkpoints=url, directory=tmp_path / "stores") as harness:
        harness.send_many("events", ["go"] * 300, key=lambda _: "k")
        harness.checkpoint()
        manifest = harness.checkpoint()
        assert Look(harness, manifest, tmp_path).count("second", "k") == 300
        assert all(found.fetched for found in restarted_without_state(harness))
        assert harness.state("second", "seen", "k") == 300


def test_a_storage_that_other_workers_cannot_reach_is_detected(
    harness: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on two machines with a path on each: the task has put its snapshot, and the leader does not find it."""
    put = CheckpointStorage.put

    def elsewhere(self: CheckpointStorage, path: str, raw: bytes) -> None:
        if "/tasks/" not in path:
            put(self, path, raw)

    monkeypatch.setattr(CheckpointStorage, "put", elsewhere)
    with pytest.raises(CheckpointFailedError, match="that all of them reach"):
        harness.checkpoint()

"""The checkpoint protocol, step by step: what a checkpoint contains, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.support import Bench
from tidegate import App, Context, Default, ValueState
from tidegate.checkpoints.storage.in_flight_format import InFlightRecord
from tidegate.checkpoints.storage.manifest import Manifest
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.engine.processing.context import STAMP_HEADER
from tidegate.engine.task import Task
from tidegate.errors import CheckpointFailedError, UsageError
from tidegate.keys import encode_key
from tidegate.logs.base import TopicPartition
from tidegate.state.base import Store
from tidegate.state.layout import keyed_key, keyed_prefix
from tidegate.testing import AppHarness

gates: list[asyncio.Event] = []


@pytest.fixture(autouse=True)
def _gates() -> Iterator[None]:
    gates.clear()
    yield
    gates.clear()


def make_app() -> App:
    """Every event is counted, and sent on to be counted once more. One that says `wait` waits before it is sent on."""
    app = App("pair", partitions=2)
    events, middle = app.topic("events", value_type=str), app.topic("middle", value_type=str)

    @app.process(events, to=middle)
    async def first(ctx: Context, event: str, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.value += 1
        ctx.emit(event)
        if event == "wait":
            gates.append(asyncio.Event())
            await gates[-1].wait()

    @app.process(middle)
    async def second(ctx: Context, event: str, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.value += 1

    return app


@pytest.fixture(params=["memory", "rocksdb"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AppHarness]:
    directory = tmp_path / "stores" if request.param == "rocksdb" else None
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=directory) as made:
        yield made


class Look:
    """What a checkpoint holds."""

    def __init__(self, harness: AppHarness, manifest: Manifest, directory: Path) -> None:
        assert harness.checkpoints is not None
        storage = harness.run(harness.checkpoints.storage())
        self._reader = CheckpointReader(storage, storage.folder_of_manifest(manifest), manifest)
        self._directory = directory
        self.manifest = manifest

    def count(self, service: str, key: str) -> int:
        return sum(self._count(service, number, key) for number in range(2))

    def _count(self, service: str, number: int, key: str) -> int:
        store = self._open(service, number)
        try:
            raw = store.get(keyed_key(keyed_prefix("seen"), encode_key(key)))
            return 0 if raw is None else int(raw)
        finally:
            store.close()

    def _open(self, service: str, number: int) -> Store:
        return self._reader.open_store(self._reader.task(service, number), self._directory / f"{service}.{number}")

    @property
    def in_flight(self) -> list[InFlightRecord]:
        return [record for task in self.manifest.tasks for record in self._reader.in_flight(task)]


def task(harness: AppHarness, service: str, number: int) -> Task:
    return harness.engine.tasks[f"{service}.{number}"]


def test_a_checkpoint_contains_committed_state(harness: AppHarness, tmp_path: Path) -> None:
    for number in range(20):
        harness.send("events", "go", key=f"k{number % 5}")

    look = Look(harness, harness.checkpoint(), tmp_path)

    assert [look.count(service, "k1") for service in ("first", "second")] == [4, 4]
    assert look.in_flight == []
    assert look.manifest.epoch == 1
    assert look.manifest.outside == ["events"]
    assert look.manifest.parallelism == {"first": 2, "second": 2}
    assert {task.marker.epoch for task in look.manifest.tasks} == {1}


def test_a_checkpoint_excludes_later_records(harness: AppHarness, tmp_path: Path) -> None:
    harness.send("events", "go", key="k")
    manifest = harness.checkpoint()
    for _ in range(50):
        harness.send("events", "go", key="k")

    assert Look(harness, manifest, tmp_path).count("second", "k") == 1
    assert Look(harness, harness.checkpoint(), tmp_path).count("second", "k") == 51


def test_sent_and_unhandled_records_are_in_flight(harness: AppHarness, tmp_path: Path) -> None:
    harness.send("events", "go", key="k", settle=False)
    harness.run(first_only(harness))

    look = Look(harness, harness.checkpoint(), tmp_path)

    assert (look.count("first", "k"), look.count("second", "k")) == (1, 0)
    assert [(record.key, record.value) for record in look.in_flight] == [(b"k", b'"go"')]


async def first_only(harness: AppHarness) -> None:
    """Let the first service handle and commit what there is."""
    await harness.engine.read_once()
    for number in range(2):
        task(harness, "first", number).run()
        await task(harness, "first", number).commit()


def test_a_checkpoint_neither_waits_for_nor_contains_a_suspended_handler(harness: AppHarness, tmp_path: Path) -> None:
    harness.send("events", "wait", key="slow", settle=False)
    harness.settle(wait=False)
    harness.send("events", "go", key="quick", settle=False)
    harness.settle(wait=False)

    manifest = harness.checkpoint()

    look = Look(harness, manifest, tmp_path)
    assert (look.count("first", "quick"), look.count("first", "slow")) == (1, 0)
    unfinished = [mark.unfinished for task in manifest.tasks for mark in task.marker.inputs.values() if mark.unfinished]
    assert len(unfinished) == 1
    harness.call(gates[0].set)
    harness.settle()
    assert harness.state("second", "seen", "slow") == 1


def test_records_emitted_after_the_barrier_belong_to_the_new_epoch(harness: AppHarness) -> None:
    """It was emitted before the cut, and is committed after it: a receiver that has not moved yet must do so first."""
    harness.send("events", "wait", key="slow", settle=False)
    harness.settle(wait=False)
    manifest = harness.checkpoint()
    harness.call(gates[0].set)
    harness.settle()

    sent = [record for number in range(2) for record in harness.log.fetch(TopicPartition("middle", number), 0, 10)[0]]
    stamps = [dict(record.headers)[STAMP_HEADER] for record in sent]
    assert [stamp.rpartition(b"|")[2] for stamp in stamps] == [b"%d" % manifest.epoch]


def test_a_task_moves_before_it_handles_a_record_of_a_later_epoch(harness: AppHarness) -> None:
    """The barrier itself has not reached it."""
    harness.send("events", "go", key="k", settle=False)
    harness.run(first_only(harness))
    for number in range(2):
        task(harness, "first", number).epochs.move_to(7)
    harness.send("events", "go", key="k", settle=False)
    harness.run(first_only(harness))
    harness.send("events", "go", key="k", settle=False)
    harness.run(first_only(harness))
    harness.run(harness.engine.read_once())
    number = harness.engine.plan.topics["middle"].partition_for(b"k")
    receiver = task(harness, "second", number)

    receiver.run()

    assert receiver.epochs.due
    assert receiver.invoker.handled == 2  # the third was sent after the cut
    harness.settle()
    assert harness.state("second", "seen", "k") == 3
    assert not receiver.epochs.due


def test_outside_records_need_no_look(harness: AppHarness) -> None:
    assert all(input_.outside for input_ in task(harness, "first", 0).inputs.values())
    assert not any(input_.outside for input_ in task(harness, "second", 0).inputs.values())


def test_files_that_a_complete_checkpoint_has_are_not_uploaded_again(tmp_path: Path) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=tmp_path / "stores") as harness:
        harness.send_many("events", ["go"] * 2000, key=lambda _: str(next(numbers)))
        first = harness.checkpoint()
        second = harness.checkpoint()
        third = harness.checkpoint()
        saved = harness.checkpoint("whole")

        tables = {file.path for task in third.tasks for file in task.files if file.name.endswith(".sst")}
        assert any(path.startswith(f"../{first.epoch:08d}/") for path in tables)
        assert second.uploaded < first.uploaded
        assert not any(path.startswith("..") for path in saved.paths)
        assert Look(harness, third, tmp_path).count("second", "77") == 1
        assert Look(harness, saved, tmp_path).count("second", "77") == 1


def test_a_snapshot_postpones_the_next_flush_of_its_store(tmp_path: Path) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=tmp_path / "stores") as harness:
        flushed = task(harness, "first", 0)
        began, every = harness.engine.clock.monotonic(), harness.engine.settings.flush_seconds
        flushes = []
        for seconds in (0.5 * every, 1.2 * every, 1.6 * every, 2.7 * every):
            harness.send_many("events", ["go"] * 100, key=lambda _: str(next(numbers)))
            if seconds == 0.5 * every:
                harness.checkpoint()
            harness.run(flushed.flush_store(began + seconds))
            flushes.append(flushed.store.flushes)

        assert flushes == [1, 1, 2, 3], "the snapshot; too soon after it; long enough after it; and after the flush"


def test_a_store_is_not_flushed_while_its_snapshot_is_written(tmp_path: Path) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=tmp_path / "stores") as harness:
        harness.send_many("events", ["go"] * 100, key=lambda _: str(next(numbers)))
        flushed = task(harness, "first", 0)
        later = harness.engine.clock.monotonic() + 2 * harness.engine.settings.flush_seconds

        flushed.store.hold()
        harness.run(flushed.flush_store(later))
        assert flushed.store.flushes == 0

        flushed.store.release()  # it was given up
        harness.run(flushed.flush_store(later))
        assert flushed.store.flushes == 1


numbers = iter(range(1_000_000))


def test_only_as_many_are_kept_as_wanted_and_savepoints_stay(tmp_path: Path) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path, checkpoint_keep=2) as harness:
        harness.checkpoint("mine")
        taken = [harness.checkpoint().epoch for _ in range(4)]
        assert harness.checkpoints is not None
        storage = harness.run(harness.checkpoints.storage())

        assert storage.checkpoints() == taken[:1:-1]
        assert storage.savepoints() == ["mine"]


def test_a_name_is_taken_once(harness: AppHarness) -> None:
    harness.checkpoint("mine")
    with pytest.raises(CheckpointFailedError, match="already"):
        harness.checkpoint("mine")
    with pytest.raises(UsageError, match="name of a savepoint"):
        harness.checkpoint("../mine")


def test_checkpoint_numbers_continue_after_a_crash(harness: AppHarness) -> None:
    assert [harness.checkpoint().epoch, harness.checkpoint().epoch] == [1, 2]
    harness.crash()
    assert harness.checkpoint().epoch == 3


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
def test_a_task_without_local_state_starts_from_the_newest_checkpoint(tmp_path: Path, store: str) -> None:
    directory = tmp_path / "stores" if store == "rocksdb" else None
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=directory) as harness:
        harness.send_many("events", ["go"] * 500, key=lambda _: str(next(numbers) % 50))
        harness.checkpoint()
        harness.send("events", "go", key="tail")
        recovered = restarted_without_state(harness)

        assert all(found.fetched for found in recovered)
        assert sum(found.replayed for found in recovered) < 30
        assert harness.state("second", "seen", "tail") == 1
        harness.send("events", "go", key="tail")
        assert harness.state("second", "seen", "tail") == 2


def restarted_without_state(harness: AppHarness) -> list[Any]:
    harness.run(harness.engine.close_tasks(commit=False))
    harness.engine.stores.destroy_all()
    reports = harness.run(harness.engine.open_tasks())
    harness.settle()
    return [report.recovered for report in reports]


def test_recovery_falls_back_from_a_damaged_checkpoint_to_an_older_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=tmp_path / "stores") as harness:
        harness.send_many("events", ["go"] * 500, key=lambda _: str(next(numbers) % 50))
        harness.checkpoint()
        harness.send("events", "go", key="late")
        newest = harness.checkpoint()
        for file in (tmp_path / f"kept/pair/checkpoints/{newest.epoch:08d}/files").rglob("MANIFEST-*"):
            file.write_bytes(file.read_bytes()[:-1])
        recovered = restarted_without_state(harness)

        assert all(found.fetched for found in recovered)
        assert f"checkpoint {newest.epoch} is skipped" in caplog.text
        assert "MANIFEST" in caplog.text
        assert harness.state("second", "seen", "late") == 1


def test_without_any_whole_checkpoint_the_changelog_is_replayed(tmp_path: Path) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept", directory=tmp_path / "stores") as harness:
        harness.send_many("events", ["go"] * 100, key=lambda _: "k")
        harness.checkpoint()
        for manifest in (tmp_path / "kept").rglob("manifest.json"):
            manifest.write_text("not JSON")
        recovered = restarted_without_state(harness)

        assert not any(found.fetched for found in recovered)
        assert harness.state("second", "seen", "k") == 100


def test_a_checkpoint_of_another_life_of_the_app_is_of_no_use(tmp_path: Path) -> None:
    with AppHarness(make_app(), checkpoints=tmp_path / "kept") as harness:
        harness.send("events", "go", key="old")
        harness.checkpoint()
    with AppHarness(make_app(), checkpoints=tmp_path / "kept") as harness:
        harness.send("events", "go", key="new")
        recovered = restarted_without_state(harness)

        assert not any(found.fetched for found in recovered)
        assert harness.state("second", "seen", "old") is None
        assert harness.checkpoint().epoch == 2, "numbers are not used twice in one storage"


def test_without_a_place_for_them_there_are_none() -> None:
    with Bench(_nothing) as bench, pytest.raises(UsageError, match="AppHarness"):
        bench.checkpoint()


async def _nothing(ctx: Context, event: Any) -> None: ...

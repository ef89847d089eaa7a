"""Internal topics: consumed records are deleted, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.checkpoints.test_giving_up import begin, until_decided
from tidegate import App, Context, ValueState
from tidegate.checkpoints.coordination.coordinator import Coordinator
from tidegate.errors import FencedError, LogError
from tidegate.logs.base import TopicPartition
from tidegate.testing import AppHarness

INTERNAL = TopicPartition("trimmed.count.events.by-key", 0)


def make_app() -> App:
    app = App("trimmed", partitions=1)
    events = app.topic("events", value_type=int)

    @app.process(events, key_by=lambda event: str(event % 3), name="count")
    async def count(ctx: Context, event: int, seen: ValueState[int | None]) -> None:
        seen.value = (seen.value or 0) + 1

    return app


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AppHarness]:
    with AppHarness(make_app(), checkpoints=tmp_path) as made:
        yield made


def leader(harness: AppHarness) -> Coordinator:
    assert harness.checkpoints is not None
    return harness.checkpoints.coordinator


def bounds(harness: AppHarness) -> tuple[int, int]:
    return harness.log.bounds(INTERNAL)


def pass_on_alone(harness: AppHarness, count: int) -> None:
    """Records come into the internal topic, and its reader has not committed them."""
    harness.send_many("events", range(count), key=str, settle=False)
    first, _ = harness.engine.tasks.values()
    harness.run(harness.engine.read_once())
    harness.run(harness.engine.work_once(commits=False))
    harness.run(first.commit())


def test_consumed_records_are_deleted_without_checkpoints(harness: AppHarness) -> None:
    harness.run(leader(harness).step())
    for number in range(1, 4):
        harness.send_many("events", range(10), key=str)
        harness.clock.advance(31)
        harness.run(leader(harness).step())
        start, end = bounds(harness)
        assert end > 10 * number
        assert start >= end - 1, "all but the gap that a transaction leaves"
    harness.crash()
    harness.send("events", 4, key="x")
    assert harness.state("count", "seen", "1") == 3 * 3 + 1


def test_a_short_lived_worker_trims_records_read_by_its_predecessor(harness: AppHarness) -> None:
    harness.send_many("events", range(10), key=str)
    harness.run(leader(harness).step())
    start, end = bounds(harness)
    assert start >= end - 1


def test_elapsed_time_alone_deletes_no_records(harness: AppHarness) -> None:
    """The events may be from long ago, and the worker may have been away for long."""
    assert harness.run(harness.log.topics())[INTERNAL.topic].retention_ms is None


def test_uncommitted_records_are_kept(harness: AppHarness) -> None:
    harness.send_many("events", range(10), key=str)
    _, read = bounds(harness)
    pass_on_alone(harness, 20)
    harness.run(leader(harness).step())

    assert bounds(harness)[0] <= read
    harness.crash()
    harness.settle()
    assert sum(harness.state("count", "seen", key) for key in "012") == 30


def test_no_records_are_deleted_during_a_checkpoint(harness: AppHarness) -> None:
    """What was in flight at its cut is committed by now, and not copied yet."""
    harness.run(leader(harness).step())
    harness.send_many("events", range(10), key=str)
    harness.run(begin(harness))
    harness.clock.advance(31)
    before = bounds(harness)
    harness.run(leader(harness).step())
    assert bounds(harness) == before

    assert harness.run(until_decided(harness)).startswith("complete")
    harness.run(leader(harness).step())
    assert bounds(harness)[0] > before[0]


def test_a_superseded_leader_deletes_no_records(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one may have begun a checkpoint between."""
    harness.send_many("events", range(10), key=str)
    before = bounds(harness)
    from tidegate.checkpoints.coordination import coordinator
    from tidegate.checkpoints.coordination.log_trim import consumed_positions

    async def followed(*arguments: object) -> dict[TopicPartition, int]:
        done = await consumed_positions(*arguments)  # type: ignore[arg-type]
        assert done
        await harness.log.writer("trimmed.leader")
        return done

    monkeypatch.setattr(coordinator, "consumed_positions", followed)
    with pytest.raises(FencedError):
        harness.run(leader(harness).step())
    assert bounds(harness) == before


def test_a_checkpoint_fails_whose_records_in_flight_are_gone(harness: AppHarness) -> None:
    """Whatever has deleted them: otherwise the checkpoint would be complete without them."""
    harness.run(leader(harness).step())
    pass_on_alone(harness, 10)
    harness.run(begin(harness))
    harness.run(harness.engine.poll_control(timeout=0))
    harness.run(harness.engine.commit_epochs())
    harness.run(harness.log.trim({INTERNAL: bounds(harness)[1]}))
    assert "its in-flight records begin at 0" in harness.run(until_decided(harness))


def test_a_log_that_refuses_to_trim_is_logged_once_and_tried_again(
    harness: AppHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_: object) -> None:
        raise LogError("not allowed to this user")

    harness.send_many("events", range(10), key=str)
    with monkeypatch.context() as refusing:
        refusing.setattr(harness.log, "trim", refuse)
        for _ in range(3):
            harness.run(leader(harness).step())
            harness.clock.advance(31)
    assert caplog.text.count("not allowed to this user") == 1

    harness.run(leader(harness).step())
    assert bounds(harness)[0] > 0

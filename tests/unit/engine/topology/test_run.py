"""Runs: each has topics of its own, knows when it is over, and does not read what older ones have sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidegate import App, Context, ListState, MapState
from tidegate.engine.processing.context import STAMP_HEADER
from tidegate.engine.topology.run import FIRST, Run, current_run, run_record, without_older
from tidegate.engine.topology.shuffle import in_flight_topic
from tidegate.errors import RunOverError
from tidegate.logs.base import Headers, TopicPartition, TopicSpec
from tidegate.testing import AppHarness


class Word(msgspec.Struct, frozen=True):
    text: str


def words_app() -> tuple[App, Any, Any, Any, Any]:
    app = App("app")
    lines = app.topic("lines", value_type=Word, key="text", partitions=2)
    words = app.topic("words", value_type=Word, key="text", partitions=2)

    @app.process(lines, to=words)
    async def split(ctx: Context, line: Word, seen: MapState[str, int]) -> None:
        seen[line.text] = seen.get(line.text, 0) + 1
        ctx.emit(line)

    @app.process(words)
    async def count(ctx: Context, word: Word, got: ListState[str]) -> None:
        got.append(dict(ctx.headers).get("from", b"a service").decode())

    return app, lines, words, split, count


async def begin_run(harness: AppHarness, run: Run) -> None:
    """What a restore does last."""
    writer = await harness.log.writer()
    await writer.append({TopicPartition("app.control", 0): [run_record(run, 0)]})
    await writer.close()


def restart(harness: AppHarness) -> None:
    harness.run(harness.engine.close_tasks(commit=False))
    harness.run(harness._open())
    harness.settle()


def test_the_first_run_needs_no_record() -> None:
    app, *_ = words_app()
    with AppHarness(app) as harness:
        assert harness.run(current_run(harness.log, "app")) == FIRST
        assert harness.run(current_run(harness.log, "another")) == FIRST
        assert harness.engine.plan.tasks[0].changelog.topic == "app.split.changelog"


def test_a_new_run_has_its_own_changelogs_and_transactional_ids() -> None:
    app, lines, *_, split, _ = words_app()
    with AppHarness(app) as harness:
        harness.send(lines, Word("a"))
        harness.run(begin_run(harness, Run(id="2")))
        restart(harness)
        plan = harness.engine.plan
        assert {task.changelog.topic for task in plan.tasks} == {
            "app.run-2.split.changelog", "app.run-2.count.changelog",
        }  # fmt: skip
        assert {task.transactional_id for task in plan.tasks} >= {"app.run-2.split.0"}
        harness.send(lines, Word("a"))
        assert harness.state(split, "seen", "a") == {"a": 2}  # from the start: no restore has brought positions
        restart(harness)
        assert harness.state(split, "seen", "a") == {"a": 2}


def test_a_worker_that_sees_a_newer_run_stops_with_an_error() -> None:
    app, *_ = words_app()
    with AppHarness(app) as harness:
        harness.run(begin_run(harness, Run(id="2", savepoint="monday")))
        with pytest.raises(RunOverError, match=r"run 1 of 'app'.*current run is 2, which was restored from monday"):
            harness.settle()


def test_a_reopened_task_detects_a_newer_run_before_it_writes() -> None:
    app, *_ = words_app()
    with AppHarness(app) as harness:
        plan = harness.engine.plan
        before = harness.records("app.split.changelog")
        harness.run(begin_run(harness, Run(id="2")))
        harness.run(harness.engine._task_manager.stop(commit=False))
        with pytest.raises(RunOverError):
            harness.run(harness.engine._task_manager.start())
        assert harness.engine.plan is plan
        assert harness.records("app.split.changelog") == before


def test_records_of_the_apps_older_runs_are_skipped_and_other_senders_are_not() -> None:
    app, lines, words, _, count = words_app()
    with AppHarness(app) as harness:
        harness.send(lines, Word("a"))
        harness.send(words, Word("a"), headers=[("from", b"outside")])
        assert harness.state(count, "got", "a") == ["a service", "outside"]
        harness.run(begin_run(harness, Run(id="2", ancestors=("old|7",))))
        restart(harness)
        # `lines` is read again from its start, for no restore has said otherwise; `words` has what run 1 has sent.
        assert harness.state(count, "got", "a") == ["outside", "a service"]
        harness.send(words, Word("a"), headers=[("from", b"old"), (STAMP_HEADER, b"old|7|x.0|3")])
        harness.send(words, Word("a"), headers=[("from", b"older"), (STAMP_HEADER, b"old|6|x.0|3")])
        assert harness.state(count, "got", "a") == ["outside", "a service", "older"]


def test_restored_in_flight_records_are_read_first() -> None:
    app, _, words, _, count = words_app()
    with AppHarness(app) as harness:
        harness.send(words, Word("a"), headers=[("from", b"outside")])
        run = Run(id="2")
        name = in_flight_topic("app", run, "count", "words")
        partition = harness.engine.plan.topics["words"].partition_for(b"a")

        async def carry() -> None:
            await harness.log.create([TopicSpec(name=name, partitions=2)])
            headers: Headers = [("from", b"flight"), (STAMP_HEADER, b"app|1|split.0|0")]
            record = (b"a", b'{"text":"a"}', 5, headers)
            writer = await harness.log.writer()
            await writer.append({TopicPartition(name, partition): [record, record]})
            await begin_run(harness, run)

        harness.run(carry())
        restart(harness)
        assert harness.state(count, "got", "a") == ["flight", "flight", "outside"]
        restart(harness)
        harness.crash()
        assert harness.state(count, "got", "a") == ["flight", "flight", "outside"]


def test_a_first_run_searches_for_nothing() -> None:
    assert without_older("app", FIRST, STAMP_HEADER) is None
    assert without_older("app", Run(id="1", ancestors=("other|1",)), STAMP_HEADER) is not None


def test_removed_services_are_found_by_their_changelogs() -> None:
    app, *_ = words_app()
    with AppHarness(app) as harness:
        made = (
            "app.run-2.split.changelog",
            "app.gone.changelog",
            "app.eu.x.changelog",
            "app.eu.control",
            "b.changelog",
        )
        harness.run(harness.log.create([TopicSpec(name=name, partitions=1) for name in made]))
        restart(harness)
        assert harness.engine.plan.forgotten == ["gone"]

"""An app runs in its caller's event loop: it starts, ends and fails alike, with Faust beside its services or not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidegate import App, Context, Topic, ValueState
from tidegate.errors import LogInUseError, ServiceFailedError
from tidegate.testing import AppHarness

beside = pytest.mark.parametrize("faust", [False, True], ids=["alone", "with faust"])


def make_app(
    directory: Path, *, faust: bool, commit_interval: float = 0.02, handled: asyncio.Event | None = None
) -> tuple[App, Topic[str], Topic[int]]:
    """handled: set when a word has come for the second time."""
    app = App("running", data=directory, commit_interval=commit_interval, partitions=1)
    words = app.topic("words", value_type=str, key=lambda word: word)
    counts = app.topic("counts", value_type=int)

    @app.process(words, to=counts)
    async def count(ctx: Context, word: str, seen: ValueState[int | None]) -> None:
        if word == "bad":
            raise ValueError("no such word")
        seen.value = (seen.value or 0) + 1
        ctx.emit(seen.value)
        if handled is not None and seen.value == 2:
            handled.set()

    if faust:
        assert app.faust is app.faust
    return app, words, counts


async def recovered(directory: Path, *, faust: bool) -> int:
    """Keys with state, as the next start finds them."""
    app, _, _ = make_app(directory, faust=faust)
    await app.start()
    await app.stop()
    return app.host.recovered_keys.keys


@beside
async def test_handled_records_are_committed_when_the_app_stops(tmp_path: Path, faust: bool) -> None:
    handled = asyncio.Event()
    app, words, _ = make_app(tmp_path, faust=faust, commit_interval=60, handled=handled)
    await app.start()
    for word in ("a", "b", "a"):
        assert await words.send(word) is not None
    await asyncio.wait_for(handled.wait(), 20)
    await app.stop()
    assert app.failure is None
    assert not app.host.uncommitted
    assert await recovered(tmp_path, faust=faust) == 2


@beside
async def test_a_service_that_fails_ends_the_wait_with_its_exception(tmp_path: Path, faust: bool) -> None:
    app, words, _ = make_app(tmp_path, faust=faust)
    await app.start()
    await words.send("bad")
    await asyncio.wait_for(app.wait(), 20)
    await app.stop()
    assert isinstance(app.failure, ServiceFailedError)
    assert isinstance(app.failure.cause, ValueError)
    assert not app.host.running


@beside
async def test_a_bounded_run_ends_the_wait_without_a_failure(tmp_path: Path, faust: bool) -> None:
    app, words, _ = make_app(tmp_path, faust=faust, commit_interval=60)
    await app.start()
    await words.send_many(["a", "b"])
    await app.stop()

    again, _, _ = make_app(tmp_path, faust=faust)
    again.host.until_end = True
    await again.start()
    await asyncio.wait_for(again.wait(), 20)
    assert again.host.finished.is_set()
    await again.stop()
    assert again.failure is None
    assert await recovered(tmp_path, faust=faust) == 2


@beside
async def test_a_failed_start_raises_and_leaves_nothing_running(tmp_path: Path, faust: bool) -> None:
    first, _, _ = make_app(tmp_path, faust=False)
    await first.start()
    second, _, _ = make_app(tmp_path, faust=faust)
    with pytest.raises(LogInUseError):
        await second.start()
    await second.stop()
    assert first.host.running
    await first.stop()


@beside
async def test_an_app_that_was_not_started_may_be_stopped(tmp_path: Path, faust: bool) -> None:
    app, _, _ = make_app(tmp_path, faust=faust)
    await app.stop()
    assert app.failure is None


async def test_a_task_of_fausts_that_fails_ends_the_wait_with_its_exception(tmp_path: Path) -> None:
    app, words, _ = make_app(tmp_path, faust=False)
    failed = ValueError("out of rhythm")

    @app.task
    async def drum() -> None:
        await words.send("a")
        raise failed

    await app.start()
    await asyncio.wait_for(app.wait(), 20)
    await app.stop()
    assert app.failure is failed
    assert not app.host.running
    assert await recovered(tmp_path, faust=False) == 1


async def test_a_task_and_a_timer_are_handed_over_and_stay_what_they_are(tmp_path: Path) -> None:
    app, _, _ = make_app(tmp_path, faust=False)
    called = asyncio.Event()
    apps: list[object] = []

    @app.timer(0.01, name="tick")
    async def tick() -> None:
        called.set()

    @app.task(on_leader=True)
    async def leading(hosted: object) -> None:
        apps.append(hosted)

    @app.crontab("0 0 1 1 *")
    async def yearly() -> None:
        raise AssertionError

    await app.start()
    await asyncio.wait_for(called.wait(), 20)
    await app.stop()
    assert app.failure is None
    assert apps == [app.faust]
    assert [function.__name__ for function in (tick, leading, yearly)] == ["tick", "leading", "yearly"]


def test_the_harness_runs_the_services_of_an_app_that_uses_faust(tmp_path: Path) -> None:
    app, words, counts = make_app(tmp_path, faust=True)
    with AppHarness(app) as harness:
        harness.send(words, "a")
        assert harness.outputs(counts) == [1]

"""A stopwatch measures the steps of a coroutine, not its waits, and does not change its behaviour."""

from __future__ import annotations

import asyncio
import time

import pytest

from tidegate.engine.runtime.stopwatch import Stopwatch


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def test_a_stopwatch_counts_only_its_own_steps() -> None:
    watch, begun, over = Stopwatch(), asyncio.Event(), asyncio.Event()

    async def timed() -> str:
        work(0.02)
        begun.set()
        await over.wait()
        work(0.02)
        return "done"

    async def other() -> None:
        await begun.wait()
        work(0.3)
        over.set()

    result, _ = await asyncio.gather(watch.measure(timed()), other())
    assert result == "done"
    assert 0.04 <= watch.seconds < 0.3


async def test_errors_propagate_in_both_directions() -> None:
    watch = Stopwatch()
    seen: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("on purpose")

    async def is_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            raise

    async def awaits_failing() -> str:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(KeyError("k"))
        try:
            await future
        except KeyError:
            return "caught"
        return "missed"

    with pytest.raises(ValueError, match="on purpose"):
        await watch.measure(fails())
    assert await watch.measure(awaits_failing()) == "caught"

    async def around() -> None:
        await watch.measure(is_cancelled())

    task = asyncio.create_task(around())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]

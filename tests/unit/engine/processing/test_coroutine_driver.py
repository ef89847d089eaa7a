"""A driver runs coroutines directly, and as an ordinary asyncio task after they suspend."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from tidegate.engine.processing.coroutine_driver import CoroutineDriver

Drive = Callable[[Coroutine[Any, Any, Any]], Awaitable[BaseException | None]]
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
async def driver() -> AsyncIterator[CoroutineDriver]:
    driver = CoroutineDriver(asyncio.get_running_loop(), "driver")
    yield driver
    await driver.close()


@pytest.fixture
def drive(driver: CoroutineDriver) -> Drive:
    """Run a coroutine to its end; what it raised."""

    async def to_the_end(coroutine: Coroutine[Any, Any, Any]) -> BaseException | None:
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        try:
            yielded = driver.drive(lambda: coroutine.send(None))
        except StopIteration:
            return None
        except (Exception, asyncio.CancelledError) as error:
            return error
        driver.resume(coroutine, yielded, ended.set_result)
        return await asyncio.wait_for(ended, 5)

    return to_the_end


async def test_a_coroutine_that_does_not_suspend_is_done_at_once(driver: CoroutineDriver) -> None:
    async def quick() -> str:
        return "done"

    coroutine = quick()
    with pytest.raises(StopIteration) as stop:
        driver.drive(lambda: coroutine.send(None))
    assert stop.value.value == "done"


async def test_the_current_task_is_the_same_before_and_after_a_suspension(drive: Drive) -> None:
    tasks = []

    async def handler() -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0.001)
        tasks.append(asyncio.current_task())

    mine = asyncio.current_task()
    assert await drive(handler()) is None
    assert asyncio.current_task() is mine
    assert len(set(tasks)) == 1
    assert tasks[0] is not mine


async def test_an_error_after_a_suspension_is_handed_over(drive: Drive) -> None:
    async def handler() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    assert isinstance(await drive(handler()), ValueError)
    assert await drive(asyncio.sleep(0)) is None


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("delay", [0, -1, 0.005])
async def test_asyncio_timeout_works_before_and_after_the_first_suspension(
    drive: Drive, first: bool, delay: float
) -> None:
    seen = []

    async def handler() -> None:
        if not first:
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(delay):
                await asyncio.sleep(10)
        except TimeoutError:
            seen.append("timed out")
        await asyncio.sleep(0)
        seen.append("went on")

    for _ in range(3):
        assert await drive(handler()) is None
    assert seen == ["timed out", "went on"] * 3


async def test_a_timeout_that_is_not_reached_leaves_no_trace(drive: Drive) -> None:
    async def handler() -> None:
        async with asyncio.timeout(0.005):  # noqa: ASYNC100
            pass
        await asyncio.sleep(0.01)

    assert await drive(handler()) is None


async def test_nested_timeouts_end_the_right_one(drive: Drive) -> None:
    seen = []

    async def handler() -> None:
        async with asyncio.timeout(5):
            try:
                async with asyncio.timeout(0):
                    await asyncio.sleep(10)
            except TimeoutError:
                seen.append("inner")
            await asyncio.sleep(0)
        seen.append("outer went on")

    assert await drive(handler()) is None
    assert seen == ["inner", "outer went on"]


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
async def test_task_groups_work_before_and_after_the_first_suspension(drive: Drive, first: bool) -> None:
    async def child(number: int) -> int:
        await asyncio.sleep(0)
        if number < 0:
            raise ValueError(number)
        return number

    sums = []

    async def handler(*numbers: int) -> None:
        if not first:
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(number)) for number in numbers]
        sums.append(sum(task.result() for task in tasks))

    assert await drive(handler(1, 2)) is None
    error = await drive(handler(1, -1))
    assert isinstance(error, ExceptionGroup)
    assert await drive(handler(3, 4)) is None
    assert sums == [3, 7]


async def test_anyio_scopes_work(drive: Drive) -> None:
    seen: list[Any] = []

    async def handler() -> None:
        with anyio.move_on_after(0):
            await anyio.sleep(10)
        with anyio.move_on_after(0.005) as scope:
            await anyio.sleep(10)
        seen.append(scope.cancelled_caught)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
        seen.append("done")

    assert await drive(handler()) is None
    assert seen == [True, "done"]


async def test_a_context_variable_keeps_its_value_over_a_suspension(drive: Drive) -> None:
    seen = []

    async def handler() -> None:
        token = variable.set("mine")
        await asyncio.sleep(0)
        seen.append(variable.get())
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
        variable.reset(token)

    async def child() -> None:
        seen.append(variable.get())

    assert await drive(handler()) is None
    assert seen == ["mine", "mine"]
    assert variable.get() == "unset"


async def test_cancelling_ends_the_coroutine_with_its_cleanup(driver: CoroutineDriver) -> None:
    seen = []

    async def handler() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    coroutine = handler()
    driver.resume(coroutine, driver.drive(lambda: coroutine.send(None)), ended.set_result)
    driver.cancel()  # before its task had a turn
    assert isinstance(await ended, asyncio.CancelledError)
    assert seen == ["cleaned up"]


async def test_cancelling_a_coroutine_cancels_what_it_awaits(drive: Drive, driver: CoroutineDriver) -> None:
    inner: list[asyncio.Task[None]] = []

    async def handler() -> None:
        inner.append(asyncio.create_task(asyncio.sleep(10)))
        asyncio.get_running_loop().call_soon(driver.cancel)
        await inner[0]

    assert isinstance(await drive(handler()), asyncio.CancelledError)
    assert inner[0].cancelled()


@pytest.mark.parametrize("ending", ["swallow", "replace"])
async def test_a_cancellation_that_was_not_heeded_does_not_reach_the_next_coroutine(
    drive: Drive, driver: CoroutineDriver, ending: str
) -> None:
    async def stubborn() -> None:
        asyncio.get_running_loop().call_soon(driver.cancel)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            if ending == "replace":
                raise ValueError("instead") from None

    async def with_group() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))

    error = await drive(stubborn())
    assert (error is None) == (ending == "swallow")
    assert await drive(with_group()) is None


@pytest.mark.parametrize("wait", [True, False])
async def test_a_coroutine_may_cancel_its_own_task(drive: Drive, wait: bool) -> None:
    async def handler() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if wait:
            await asyncio.sleep(10)

    error = await drive(handler())
    assert isinstance(error, asyncio.CancelledError) == wait
    await asyncio.sleep(0)
    assert await drive(asyncio.sleep(0.001)) is None


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_closing_cancels_running_coroutines_without_callbacks(turns: int) -> None:
    driver = CoroutineDriver(asyncio.get_running_loop(), "driver")
    seen: list[Any] = []

    async def handler() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")  # and goes on to its end

    coroutine = handler()
    driver.resume(coroutine, driver.drive(lambda: coroutine.send(None)), seen.append)
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(5):  # `wait_for` would let the loop turn first, in Python 3.11
        await driver.close()
    assert seen == ["cancelled"]


async def test_closing_an_idle_driver_ends_its_task() -> None:
    before = len(asyncio.all_tasks())
    driver = CoroutineDriver(asyncio.get_running_loop(), "driver")
    await driver.close()
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("doing", ["nothing", "waiting", "stubborn"])
def test_an_ending_loop_does_not_wait_for_an_unclosed_driver(doing: str) -> None:
    told: list[BaseException | None] = []

    async def waiting() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            if doing == "waiting":
                raise

    async def leave_behind() -> None:
        driver = CoroutineDriver(asyncio.get_running_loop(), "driver")
        if doing != "nothing":
            coroutine = waiting()
            driver.resume(coroutine, driver.drive(lambda: coroutine.send(None)), told.append)
        await asyncio.sleep(0)

    asyncio.run(leave_behind())  # it cancels what is left, and waits for its end
    assert [type(error) for error in told] == {
        "nothing": [],
        "waiting": [asyncio.CancelledError],
        "stubborn": [type(None)],
    }[doing]


@pytest.mark.parametrize("wait", [True, False], ids=["while it waits", "while it is idle"])
async def test_a_driver_continues_after_an_outside_cancellation_of_its_task(drive: Drive, wait: bool) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def handler() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        if wait:
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(10)

    for _ in range(2):
        error = await drive(handler())
        assert isinstance(error, asyncio.CancelledError) == wait
        tasks[-1].cancel()
        await asyncio.sleep(0)
        assert await drive(asyncio.sleep(0)) is None
    assert tasks[0] is not tasks[1]

"""Functions that await nothing do the same without a coroutine; the others are left as they are."""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tidegate.functions.declaration.sync_call import without_coroutine

Function = Callable[..., Any]


def run(function: Function, *arguments: Any, **named: Any) -> Any:
    """What comes of its coroutine."""
    coroutine = function(*arguments, **named)
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


def closing_over(start: int) -> Function:
    total = start

    async def add(by: int) -> int:
        nonlocal total
        total += by
        return total

    return add


async def plain(number: int) -> int:
    return number + 1


async def nothing(number: int) -> None:
    pass


async def with_defaults(number: int, more: int = 10, *, factor: int = 3) -> int:
    return (number + more) * factor


async def with_stars(*numbers: int, **named: int) -> int:
    return sum(numbers) + sum(named.values())


async def with_cells(number: int) -> list[int]:
    def double() -> int:
        return number * 2

    return [double() for _ in range(number)]


async def with_a_generator(number: int) -> int:
    return sum(item * number for item in range(number))


async def with_control_flow(number: int) -> list[Any]:
    seen: list[Any] = []
    with nullcontext(number) as inner:
        for item in range(inner + 3):
            try:
                if item == 1:
                    continue
                if item == 3:
                    break
                seen.append(10 // item)
            except ZeroDivisionError as error:
                seen.append(str(error))
            finally:
                seen.append("done")
    match seen:
        case [first, *_]:
            seen.append(first)
    return seen


async def with_a_coroutine_inside(number: int) -> int:
    async def never() -> None:
        await asyncio.sleep(number)

    assert asyncio.iscoroutinefunction(never)
    return number


STRAIGHT = [
    plain, nothing, with_defaults, with_stars, with_cells, with_a_generator, with_control_flow, with_a_coroutine_inside,
]  # fmt: skip


@pytest.mark.parametrize("function", STRAIGHT, ids=lambda function: function.__name__)
def test_a_function_without_awaits_has_the_same_effect_without_a_coroutine(function: Function) -> None:
    copy = without_coroutine(function)
    assert copy is not None
    for number in (0, 1, 4):
        assert copy(number) == run(function, number)
    assert (copy.__name__, copy.__qualname__, copy.__module__) == (
        function.__name__,
        function.__qualname__,
        function.__module__,
    )


def test_keywords_and_closures_are_the_functions_own() -> None:
    copy = without_coroutine(with_defaults)
    assert copy is not None
    assert copy(1, factor=2) == run(with_defaults, 1, factor=2) == 22
    add = closing_over(5)
    copy = without_coroutine(add)
    assert copy is not None
    assert [copy(1), run(add, 1), copy(1)] == [6, 7, 8]


def test_a_method_keeps_its_object() -> None:
    class Adder:
        total = 0

        async def add(self, by: int) -> int:
            self.total += by
            return self.total

    adder = Adder()
    copy = without_coroutine(adder.add)
    assert copy is not None
    assert [copy(2), copy(3), adder.total] == [2, 5, 5]


def test_an_error_keeps_its_traceback() -> None:
    async def fail() -> None:
        raise ValueError("on purpose")

    copy = without_coroutine(fail)
    assert copy is not None
    with pytest.raises(ValueError, match="on purpose") as raised:
        copy()
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.name, last.line) == ("fail", 'raise ValueError("on purpose")')


def test_stop_iteration_is_an_error_like_any_other() -> None:
    async def stop() -> None:
        raise StopIteration

    copy = without_coroutine(stop)
    assert copy is not None
    with pytest.raises((StopIteration, RuntimeError)):
        copy()


async def awaiting() -> None:
    await asyncio.sleep(0)


async def awaiting_sometimes(number: int) -> None:
    if number > 1_000_000:
        await asyncio.sleep(0)


async def async_for(items: AsyncIterator[int]) -> None:
    async for _ in items:
        pass


async def async_with(lock: asyncio.Lock) -> None:
    async with lock:
        pass


async def async_comprehension(items: AsyncIterator[int]) -> list[int]:
    return [item async for item in items]


async def async_generator() -> AsyncIterator[int]:
    yield 1


def not_async() -> None:
    pass


class WithCall:
    async def __call__(self) -> None:
        pass


@functools.wraps(plain)
async def wrapping(number: int) -> int:
    return await plain(number)


OTHERS = [
    awaiting, awaiting_sometimes, async_for, async_with, async_comprehension, async_generator, not_async, WithCall(),
    functools.partial(plain, 1), wrapping, len,
]  # fmt: skip


@pytest.mark.parametrize(
    "function", OTHERS, ids=lambda function: getattr(function, "__name__", type(function).__name__)
)
def test_what_may_wait_or_is_something_else_is_left_as_it_is(function: Function) -> None:
    assert without_coroutine(function) is None

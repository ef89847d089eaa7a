"""Time to live: what is expired is never returned, and is really removed."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from tests.support import Bench
from tidegate import (
    SKIP,
    TTL,
    Context,
    Default,
    EventTime,
    ListState,
    MapState,
    Monotonic,
    Reduce,
    ReducingState,
    Timer,
    ValueState,
)
from tidegate.errors import DefinitionError
from tidegate.state.layout import KEYED, TIMER

ETERNAL = Monotonic(idle_after=None)


def stored(bench: Bench) -> int:
    """How many entries of state the stores hold."""
    return sum(1 for task in bench.engine.tasks.values() for _ in task.store.scan(KEYED, TIMER))


async def keep(ctx: Context, event: Any, kept: Annotated[ValueState[int | None], TTL(hours=1)]) -> None:
    if event == "fail":
        kept.value = -1
        raise ValueError("on purpose")
    if event is not None:
        kept.value = event
    ctx.emit([kept.value, kept.exists])


async def keep_changeable(
    ctx: Context, event: Any, kept: Annotated[ValueState[list[int] | None], TTL(hours=1)]
) -> None:
    if event is not None:
        if kept.value is not None:
            kept.value.append(event)
        else:
            kept.value = [event]
    ctx.emit([kept.value, kept.exists])


def test_a_value_expires_after_its_ttl() -> None:
    with Bench(keep) as b:
        b.put("k", 1)
        b.advance(minutes=59, seconds=59)
        b.put("k", None)
        assert b.value("kept", "k") == 1
        b.clock.advance(1)
        assert b.value("kept", "k") is None
        b.put("k", None)
        assert b.outputs(b.out) == [[1, True], [1, True], [None, False]]


def test_writing_renews_the_time_to_live_and_reading_does_not() -> None:
    with Bench(keep) as b:
        b.put("k", 1)
        b.advance(minutes=40)
        b.put("k", 1)
        b.advance(minutes=40)
        b.put("k", None)
        b.advance(minutes=20)
        b.put("k", None)
        assert b.outputs(b.out) == [[1, True], [1, True], [1, True], [None, False]]


@pytest.mark.parametrize("wait", [False, True])
def test_a_change_in_place_is_a_write_and_a_look_is_not(wait: bool) -> None:
    async def change(ctx: Context, event: Any, kept: Annotated[ValueState[list[int] | None], TTL(hours=1)]) -> None:
        if wait:
            await asyncio.sleep(0)
        await keep_changeable(ctx, event, kept)

    with Bench(change) as b:
        b.put("k", 1)
        b.advance(minutes=40)
        b.put("k", 2)
        b.advance(minutes=40)
        b.put("k", None)
        b.advance(minutes=20)
        b.put("k", None)
        assert b.outputs(b.out) == [[[1], True], [[1, 2], True], [[1, 2], True], [None, False]]


async def accessed(
    ctx: Context, event: Any, kept: Annotated[ValueState[int | None], TTL(hours=1, on="access")]
) -> None:
    if event == "wait":
        await asyncio.sleep(0)
    elif event is not None:
        kept.value = event
    ctx.emit(kept.value)


@pytest.mark.parametrize("look", [None, "wait"])
def test_on_access_reading_renews_the_time_to_live(look: Any) -> None:
    with Bench(accessed) as b:
        b.put("k", 1)
        for _ in range(3):
            b.advance(minutes=40)
            b.put("k", look)
        b.crash()
        b.advance(minutes=59)
        b.put("k", look)
        b.advance(minutes=60)
        b.put("k", look)
        assert b.outputs(b.out) == [1, 1, 1, 1, 1, None]


def test_a_failed_handler_does_not_renew_the_time_to_live() -> None:
    with Bench(keep, service={"errors": SKIP}) as b:
        b.put("k", 1)
        b.advance(minutes=40)
        b.put("k", "fail")
        b.advance(minutes=20)
        b.put("k", None)
        assert b.outputs(b.out) == [[1, True], [None, False]]


def test_an_expired_value_is_removed_from_store_and_changelog() -> None:
    with Bench(keep) as b:
        b.put_all((f"k{number}", number) for number in range(2000))
        assert stored(b) == 2000
        b.changes()
        b.advance(minutes=60)
        assert stored(b) == 0
        changes = b.changes()
        assert len(changes) == 2000
        assert {change.value for change in changes} == {None}
        b.crash()
        assert stored(b) == 0


def test_the_ttl_sweep_keeps_values_rewritten_meanwhile() -> None:
    with Bench(keep) as b:
        b.put("old", 1)
        b.put("new", 1)
        b.advance(minutes=30)
        b.put("new", 2)
        b.advance(minutes=30)
        assert stored(b) == 1
        assert b.value("kept", "new") == 2


def test_the_ttl_sweep_skips_keys_with_suspended_handlers() -> None:
    gate = asyncio.Event()

    async def wait(ctx: Context, event: Any, kept: Annotated[ValueState[int | None], TTL(hours=1)]) -> None:
        if event is None:
            before = kept.value
            await gate.wait()
            ctx.emit([before, kept.value])
        else:
            kept.value = event

    with Bench(wait) as b:
        b.put("k", 1)
        b.put_quietly("k", None)
        b.clock.advance(7200)
        b.settle(wait=False)
        b.call(gate.set)
        b.settle()
        assert b.outputs(b.out) == [[1, None]]
        assert stored(b) == 0


# -- by event time -----------------------------------------------------------------------------------------------------


async def by_event(
    ctx: Context, event: Any, kept: Annotated[ValueState[int], TTL(hours=1, time="event"), Default(0)]
) -> None:
    if event:
        kept.value = event
    ctx.timers.after(60, name="look")
    ctx.emit(kept.value)


async def look(ctx: Context, timer: Timer, kept: Annotated[ValueState[int], Default(0)]) -> None:
    ctx.emit(["timer", kept.value])


HOUR = 3_600_000


def test_by_event_time_the_records_decide() -> None:
    topic = {"time": EventTime(), "watermark": ETERNAL}
    with Bench(by_event, timers={"look": look}, topic=topic) as b:
        b.put("k", 1, timestamp=0)
        b.advance(days=365)
        b.put("k", 0, timestamp=HOUR - 1)
        b.put("k", 0, timestamp=HOUR)
        assert [value for value in b.outputs(b.out) if not isinstance(value, list)] == [1, 1, 0]


def test_by_event_time_the_watermark_removes() -> None:
    topic = {"time": EventTime(), "watermark": ETERNAL}
    with Bench(by_event, timers={"look": look}, topic=topic) as b:
        b.put("k", 1, timestamp=0)
        b.put("other", 1, timestamp=HOUR)
        assert stored(b) == 2
        b.put("other", 1, timestamp=HOUR + 1)
        assert stored(b) == 1
        assert b.value("kept", "k") is None


def test_the_end_of_a_bounded_run_does_not_expire_everything() -> None:
    topic = {"time": EventTime(), "watermark": ETERNAL}
    with Bench(by_event, timers={"look": look}, topic=topic) as b:
        b.put("k", 1, timestamp=0)
        b.outputs(b.out)
        b.finish()
        assert b.outputs(b.out) == [["timer", 1]]
        b.restart()
        b.put("k", 0, timestamp=1)
        assert b.outputs(b.out) == [1]


# -- entries -----------------------------------------------------------------------------------------------------------


async def in_map(ctx: Context, event: Any, kept: Annotated[MapState[str, int], TTL(hours=1)]) -> None:
    if event is not None:
        kept[event] = len(kept) + 1
    ctx.emit([list(kept.items()), len(kept), "a" in kept, kept.get("a")])


def test_entries_of_a_map_expire_one_by_one() -> None:
    with Bench(in_map) as b:
        b.put("k", "a")
        b.advance(minutes=30)
        b.put("k", "b")
        b.clock.advance(1800)
        b.put("k", None)
        assert b.outputs(b.out)[-1] == [[["b", 2]], 1, False, None]
        assert b.value("kept", "k") == {"b": 2}
        b.advance(minutes=30)
        assert stored(b) == 0


async def in_list(ctx: Context, event: Any, kept: Annotated[ListState[int], TTL(hours=1)]) -> None:
    if event == "pop":
        ctx.emit(kept.popleft() if kept else None)
    elif event is not None:
        kept.append(event)
    ctx.emit([list(kept), len(kept)])


def test_items_of_a_list_expire_one_by_one() -> None:
    with Bench(in_list) as b:
        b.put("k", 1)
        b.advance(minutes=30)
        b.put("k", 2)
        b.put("k", 3)
        b.clock.advance(1800)
        b.put("k", "pop")
        assert b.outputs(b.out)[-2:] == [2, [[3], 1]]
        b.restart()
        b.put("k", 4)
        assert b.outputs(b.out) == [[[3, 4], 2]]


def test_a_list_with_all_items_expired_is_removed() -> None:
    with Bench(in_list) as b:
        for number in range(5):
            b.put("k", number)
        b.put("emptied", 1)
        b.put("emptied", "pop")
        b.advance(minutes=60)
        assert stored(b) == 0
        b.put("k", 7)
        assert b.value("kept", "k") == [7]
        b.crash()
        assert b.value("kept", "k") == [7]


async def reduced(ctx: Context, event: int, top: Annotated[ReducingState[int], Reduce(max), TTL(hours=1)]) -> None:
    top.add(event)
    ctx.emit(top.value)


def test_a_reducing_state_starts_again_after_its_time_to_live() -> None:
    with Bench(reduced) as b:
        b.put("k", 5)
        b.put("k", 3)
        b.advance(minutes=61)
        b.put("k", 2)
        assert b.outputs(b.out) == [5, 5, 2]


async def defaults(
    ctx: Context, event: Any, kept: Annotated[ValueState[list[int]], TTL(hours=1), Default(factory=list)]
) -> None:
    if event:
        kept.value.append(event)
    ctx.emit(kept.value)


def test_an_expired_value_reads_as_the_default() -> None:
    with Bench(defaults) as b:
        b.put("k", 1)
        b.advance(minutes=61)
        b.put("k", None)
        b.put("k", 2)
        assert b.outputs(b.out) == [[1], [], [2]]


@pytest.mark.parametrize("span", [{}, {"seconds": 0}, {"days": -1}, {"milliseconds": 0.4}])
def test_a_zero_ttl_is_refused(span: dict[str, float]) -> None:
    with pytest.raises(DefinitionError, match="TTL"):
        TTL(**span)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"on": "read"}, {"time": "clock"}])
def test_a_misspelt_option_of_a_time_to_live_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=f"not '{next(iter(wrong.values()))}'"):
        TTL(days=1, **wrong)


def test_a_timers_handler_may_not_declare_another_time_to_live() -> None:
    async def other(ctx: Context, timer: Timer, kept: Annotated[ValueState[int | None], TTL(hours=2)]) -> None: ...

    with pytest.raises(DefinitionError, match="two different ways"):
        Bench(keep, timers={"t": other})

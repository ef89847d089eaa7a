from __future__ import annotations

from collections.abc import Iterable

from tidegate import App, Context, ListState, MapState, OperatorState, ValueState
from tidegate.functions.definition import ServiceDefinition
from tidegate.keys import partition_of
from tidegate.query.key_count import SAMPLED_ENTRIES, KeyCount, count_keys
from tidegate.query.views import TaskView
from tidegate.state.base import Change, StorePosition
from tidegate.state.layout import (
    EVENT,
    MARKER,
    keyed_key,
    keyed_prefix,
    operator_key,
    pack_due,
    queue_key,
    timer_key,
)
from tidegate.state.memory import MemoryStore

AT = StorePosition("lineage", 1, 1)
TASKS = 4

app = App("counting")
words = app.topic("words", value_type=str, partitions=TASKS)


@app.process(words)
async def service(
    ctx: Context,
    word: str,
    value: ValueState[int | None],
    entries: MapState[str, int],
    items: ListState[int],
    own: OperatorState[int],
) -> None:
    """Never called."""


def tasks_with(*changes: Change) -> list[tuple[ServiceDefinition, TaskView]]:
    """The service's tasks, with what belongs to keys where it belongs."""
    stores = [MemoryStore() for _ in range(TASKS)]
    stores[0].apply(changes, AT)
    return [(service.definition, TaskView(number=number, store=store)) for number, store in enumerate(stores)]


def spread(keys: Iterable[bytes], states: Iterable[str], timers: bool) -> list[tuple[ServiceDefinition, TaskView]]:
    changes: list[list[Change]] = [[] for _ in range(TASKS)]
    for key in keys:
        mine = changes[partition_of(key, TASKS)]
        mine += [(keyed_key(keyed_prefix(state), key), b"1") for state in states]
        if timers:
            mine += [(timer_key(key, "t"), pack_due(EVENT, 1)), (queue_key(EVENT, 1, key, "t"), b"")]
    tasks = tasks_with()
    for (_, view), theirs in zip(tasks, changes, strict=True):
        view.store.apply(theirs, AT)
    return tasks


def numbered(count: int) -> list[bytes]:
    return [b"key-%d" % number for number in range(count)]


def key_of_task(number: int) -> bytes:
    return next(key for key in numbered(100) if partition_of(key, TASKS) == number)


async def test_a_key_counts_once_however_much_it_has() -> None:
    key = key_of_task(0)
    tasks = tasks_with(
        (MARKER, b"{}"),
        (operator_key("own", 0), b"[]"),
        (keyed_key(keyed_prefix("value"), key), b"1"),
        *((keyed_key(keyed_prefix("entries"), key) + b"%d" % number, b"1") for number in range(9)),
        (keyed_key(keyed_prefix("items.bounds"), key), b"[0,0]"),
        (timer_key(key, "t"), pack_due(EVENT, 1)),
        (queue_key(EVENT, 1, key, "t"), b""),
    )

    assert await count_keys(tasks) == KeyCount(1, exact=True)


async def test_the_keys_of_all_tasks_are_added_up() -> None:
    assert await count_keys(spread(numbered(1234), ["value"], timers=True)) == KeyCount(1234, exact=True)


async def test_a_service_without_state_has_no_keys() -> None:
    assert await count_keys(tasks_with()) == KeyCount(0, exact=True)
    assert await count_keys([]) == KeyCount(0, exact=True)


async def test_many_keys_are_estimated_whatever_they_have() -> None:
    many = 2 * SAMPLED_ENTRIES
    for states, timers in ((["value"], False), (["value", "entries"], False), (["value"], True)):
        count = await count_keys(spread(numbered(many), states, timers))

        assert not count.exact
        assert abs(count.keys - many) < many / 20


def test_it_reads_well() -> None:
    assert str(KeyCount(1, exact=True)) == "1 key"
    assert str(KeyCount(12_345, exact=True)) == "12,345 keys"
    assert str(KeyCount(1_000_000, exact=False)) == "about 1,000,000 keys"

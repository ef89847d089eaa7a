"""Views show exactly what was committed, typed and in order, and nothing that has outlived its time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any

import pytest

from tests.support import Mean
from tidegate import (
    TTL,
    Aggregate,
    AggregatingState,
    App,
    Context,
    ListState,
    MapState,
    OperatorState,
    Reduce,
    ReducingState,
    ValueState,
)
from tidegate.errors import UnknownNameError, UsageError
from tidegate.query.json_values import StateValues
from tidegate.query.pages import Page, PageEntry
from tidegate.query.views import ServiceView, TaskView
from tidegate.testing import AppHarness

app = App("views", partitions=3)
words = app.topic("words", value_type=str)
other = app.topic("other", value_type=str)


@app.process(words)
async def speaker(
    ctx: Context,
    word: str,
    last: ValueState[str | None],
    said: ListState[str],
    counts: MapState[str, int],
    longest: Annotated[ReducingState[str], Reduce(lambda a, b: max(a, b, key=len))],
    mean: Annotated[AggregatingState[float, float], Aggregate(Mean())],
    brief: Annotated[ValueState[str | None], TTL(seconds=10)],
    timely: Annotated[ValueState[str | None], TTL(seconds=10, time="event")],
    seen: OperatorState[str],
) -> None:
    last.value = brief.value = timely.value = word
    said.append(word)
    counts[word] = counts.get(word, 0) + 1
    longest.add(word)
    mean.add(float(len(word)))
    seen.append(word)
    ctx.timers.after(60, name="later")


@speaker.on_timer("later")
async def later(ctx: Context, last: ValueState[str | None]) -> None:
    """Never comes in these tests."""


@app.process(other, key_type=int, key_by=len)
async def by_length(ctx: Context, word: str, last: ValueState[str | None]) -> None:
    last.value = word


@pytest.fixture
def harness() -> Iterator[AppHarness]:
    with AppHarness(app, partitions=3) as made:
        yield made


def view_of(harness: AppHarness, service: str) -> ServiceView:
    tasks = [task for task in harness.engine.tasks.values() if task.definition.name == service]
    views = [TaskView(number=task.plan.number, store=task.store, watermark=task.time.watermark) for task in tasks]
    return ServiceView(harness.engine.plan.services[service], views, harness.clock)


def all_entries(harness: AppHarness, ask: Callable[[bytes], Awaitable[Page]]) -> list[PageEntry]:
    async def collect() -> list[PageEntry]:
        found: list[PageEntry] = []
        after: bytes | None = b""
        while after is not None:
            page = await ask(after)
            found += page.entries
            after = page.after
        return found

    return harness.run(collect())


def values(harness: AppHarness, state: str, key: str) -> Any:
    view = view_of(harness, "speaker")
    entries = all_entries(harness, lambda after: view.entries(state, key=key.encode(), after=after, limit=2))
    return StateValues(view.declaration(state)).of(entries) if entries else None


def say(harness: AppHarness, who: str, *spoken: str) -> None:
    for word in spoken:
        harness.send(words, word, key=who)


def test_every_kind_of_state_reads_as_json(harness: AppHarness) -> None:
    say(harness, "ann", "tea", "cake", "tea")

    assert values(harness, "last", "ann") == "tea"
    assert values(harness, "said", "ann") == ["tea", "cake", "tea"]
    assert values(harness, "counts", "ann") == {"cake": 1, "tea": 2}
    assert values(harness, "longest", "ann") == "cake"
    assert values(harness, "mean", "ann") == pytest.approx(10 / 3)
    assert values(harness, "last", "bob") is None


def test_keys_come_in_order_over_all_tasks_and_pages(harness: AppHarness) -> None:
    names = [f"n{number}" for number in range(40)]
    for name in names:
        say(harness, name, "x")
    view = view_of(harness, "speaker")

    found = all_entries(harness, lambda after: view.entries("last", after=after, limit=7))
    some = all_entries(harness, lambda after: view.entries("last", prefix=b"n3", after=after, limit=3))

    assert [entry.key.decode() for entry in found] == sorted(names)
    assert [entry.key.decode() for entry in some] == sorted(name for name in names if name.startswith("n3"))


def test_a_service_behind_a_shuffle_finds_its_keys(harness: AppHarness) -> None:
    for word in ("a", "bb", "ccc", "dd"):
        harness.send(other, word, key="any")
    view = view_of(harness, "by_length")

    found = all_entries(harness, lambda after: view.entries("last", after=after))
    one = all_entries(harness, lambda after: view.entries("last", key=b"2", after=after))

    assert [(entry.key, entry.value) for entry in found] == [(b"1", b'"a"'), (b"2", b'"dd"'), (b"3", b'"ccc"')]
    assert [entry.value for entry in one] == [b'"dd"']


def test_uncommitted_data_is_not_visible(harness: AppHarness) -> None:
    harness.send(words, "tea", key="ann", settle=False)
    harness.settle(commit=False)
    assert values(harness, "last", "ann") is None

    harness.settle()
    assert values(harness, "last", "ann") == "tea"


def test_an_expired_value_is_never_returned(harness: AppHarness) -> None:
    say(harness, "ann", "tea")
    harness.clock.advance(9.9)
    assert values(harness, "brief", "ann") == "tea"

    harness.clock.advance(0.2)  # no commit has removed it yet
    assert values(harness, "brief", "ann") is None
    view = view_of(harness, "speaker")
    assert all_entries(harness, lambda after: view.entries("brief", after=after)) == []
    assert values(harness, "last", "ann") == "tea"


def test_a_value_that_lives_by_event_time_expires_by_the_watermark(harness: AppHarness) -> None:
    say(harness, "ann", "tea")
    harness.clock.jump(3600)
    assert values(harness, "timely", "ann") == "tea"

    harness.engine.advance_watermark(harness.clock.now())
    assert values(harness, "timely", "ann") is None


def test_without_a_running_task_event_time_is_that_of_the_last_commit(harness: AppHarness) -> None:
    say(harness, "ann", "tea")
    views = [TaskView(number=0, store=task.store) for task in harness.engine.tasks.values()]

    marked = [view.marker.watermark for view in views if view.marker is not None]

    assert [view.event_time() for view in views] == marked
    assert max(marked) > 0


def test_timers_are_listed_with_their_time(harness: AppHarness) -> None:
    say(harness, "ann", "tea")
    say(harness, "bob", "tea")
    view = view_of(harness, "speaker")

    everyones = all_entries(harness, lambda after: view.timers(after=after, limit=1))
    anns = all_entries(harness, lambda after: view.timers(b"ann", after=after))

    assert [(entry.key, entry.sub) for entry in everyones] == [(b"ann", b"later"), (b"bob", b"later")]
    assert [entry.key for entry in anns] == [b"ann"]


def test_operator_state_is_listed_by_task(harness: AppHarness) -> None:
    say(harness, "ann", "tea")
    view = view_of(harness, "speaker")

    items = [raw for _, raw in view.items("seen")]

    assert sorted(raw for raw in items if raw is not None) == [b'["tea"]']
    with pytest.raises(UsageError, match="belongs to tasks"):
        harness.run(view.entries("seen"))
    with pytest.raises(UsageError, match="is a keyed state"):
        view.items("last")


def test_an_unknown_state_is_refused_with_the_existing_ones(harness: AppHarness) -> None:
    with pytest.raises(UnknownNameError, match=r"'nope'.*known: .*last"):
        harness.run(view_of(harness, "speaker").entries("nope"))

"""Entries of maps are shown in the order of their keys, with keys that people can read, in either layout."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from tidegate import App, Context, MapState
from tidegate.keys import encode_key
from tidegate.query.json_values import StateValues
from tidegate.query.key_scan import KeyRange, scan_keys
from tidegate.query.pages import PageEntry
from tidegate.query.state_reader import StateReader
from tidegate.query.views import ServiceView, TaskView
from tidegate.state.layout import keyed_key, keyed_prefix
from tidegate.testing import AppHarness

NUMBERS = [-(10**20), -10, -9, 0, 9, 10, 100, 10**20]
DAY = datetime(2024, 1, 1, tzinfo=UTC)

app = App("entries")
events = app.topic("events", value_type=int)


@app.process(events)
async def service(
    ctx: Context,
    event: int,
    by_number: MapState[int, int],
    by_pair: MapState[tuple[str, int], int],
    by_time: MapState[datetime, int],
    by_raw: MapState[bytes, int],
) -> None:
    for number in NUMBERS:
        by_number[number] = event
        by_pair["a", number] = event
    for hours in (0, 12, 3):
        by_time[DAY + timedelta(hours=hours)] = event
    by_raw[b"\x83" + bytes(8)] = event


@pytest.fixture
def harness() -> Iterator[AppHarness]:
    with AppHarness(app) as made:
        made.send(events, 1, key="k")
        yield made


@pytest.fixture
def former(harness: AppHarness) -> AppHarness:
    """With entries as an earlier version has written them, as they are in an old checkpoint."""
    (task,) = harness.engine.tasks.values()
    store = task.store
    assert store.position is not None
    former: dict[str, list[Any]] = {"by_number": NUMBERS, "by_pair": [("a", number) for number in NUMBERS]}
    for state, keys in former.items():
        stem = keyed_key(keyed_prefix(state), b"k")
        gone = [(place, None) for place, _ in store.scan(stem, stem + b"\xff")]
        store.apply(gone, store.position)
        store.apply([(stem + encode_key(key), b"1") for key in keys], store.position)
    return harness


def view_of(harness: AppHarness) -> ServiceView:
    (task,) = harness.engine.tasks.values()
    return ServiceView(harness.engine.plan.services["service"], [TaskView(number=0, store=task.store)], harness.clock)


def names(state: str) -> list[str]:
    return {
        "by_number": [str(number) for number in NUMBERS],
        "by_pair": [f'["a",{number}]' for number in NUMBERS],
        "by_time": [f'"2024-01-01T{hours:02}:00:00Z"' for hours in (0, 3, 12)],
    }[state]


@pytest.mark.parametrize("state", ["by_number", "by_pair", "by_time"])
def test_pages_are_in_the_order_of_keys_wherever_they_end(harness: AppHarness, state: str) -> None:
    view = view_of(harness)

    async def collect() -> list[PageEntry]:
        found: list[PageEntry] = []
        after: bytes | None = b""
        while after is not None:
            page = await view.entries(state, key=b"k", after=after, limit=2)
            found += page.entries
            after = page.after
        return found

    entries = harness.run(collect())
    assert [entry.sub.decode() for entry in entries] == names(state)
    assert list(StateValues(view.declaration(state)).of(entries)) == names(state)


@pytest.mark.parametrize("state", ["by_number", "by_pair", "by_time"])
def test_a_whole_map_is_in_the_order_of_keys(harness: AppHarness, state: str) -> None:
    view = view_of(harness)
    reader = StateReader(view.declaration(state))
    whole = reader.value(view.task_of(b"k"), b"k", 0, max_bytes=10_000)
    assert list(orjson.loads(whole or b"{}")) == names(state)
    page = harness.run(scan_keys(view, reader, KeyRange(), 0, limit=10, max_bytes=10_000))
    assert [item.value for item in page.items] == [whole]


@pytest.mark.parametrize("layout", ["harness", "former"])
@pytest.mark.parametrize("state", ["by_number", "by_pair"])
def test_an_entry_is_found_by_its_name(request: pytest.FixtureRequest, layout: str, state: str) -> None:
    harness: AppHarness = request.getfixturevalue(layout)
    view = view_of(harness)
    reader = StateReader(view.declaration(state))
    for name in names(state):
        assert reader.entry(view.task_of(b"k"), b"k", name, 0) == b"1"
    absent = names(state)[0].replace("-", "-7")
    assert reader.entry(view.task_of(b"k"), b"k", absent, 0) is None


@pytest.mark.parametrize("state", ["by_number", "by_pair"])
def test_names_are_the_same_in_either_layout(former: AppHarness, state: str) -> None:
    view = view_of(former)
    page = former.run(view.entries(state, key=b"k"))
    assert sorted(entry.sub.decode() for entry in page.entries) == sorted(names(state))
    assert (
        set(former.state(service, state, "k"))
        == {
            "by_number": set(NUMBERS),
            "by_pair": {("a", number) for number in NUMBERS},
        }[state]
    )


def test_keys_of_bytes_are_never_taken_for_others(harness: AppHarness) -> None:
    assert harness.state(service, "by_raw", "k") == {b"\x83" + bytes(8): 1}

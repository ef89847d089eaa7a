"""Maps whose keys an earlier version wrote as JSON: their entries are moved when a task opens, each exactly once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.keyed_state.test_schema_plan import make
from tidegate import TTL, MapState, Service, Version
from tidegate.errors import SchemaError
from tidegate.faults import InjectedFault, arm, disarm, parse
from tidegate.keys import encode_key
from tidegate.logs.base import TopicPartition
from tidegate.state.base import Change
from tidegate.state.layout import MARKER, SCHEMA, keyed_prefix, parse_keyed, prefix_range
from tidegate.state.map_keys import LAYOUT, map_keys
from tidegate.state.schema import decode_schema, encode_schema
from tidegate.testing import AppHarness

PER_KEY = 700
"""With five keys in two tasks that is more than a portion."""


def fill(kept: MapState[int, int], event: int) -> None:
    for number in range(PER_KEY):
        kept[number - 300] = event


def write_former_layout(harness: AppHarness, key_type: Any, encode: Any = encode_key) -> None:
    """Turn what is stored into what an earlier version would have stored, in the changelog, and start again."""
    keys = map_keys(key_type)
    for task in list(harness.engine.tasks.values()):
        changes: list[Change] = []
        for place, raw in task.store.scan(*prefix_range(keyed_prefix("kept"))):
            sub = parse_keyed(place).subkey
            changes += [(place, None), (place[: -len(sub)] + encode(keys.decode(sub)), raw)]
        recorded = task.store.get(SCHEMA + b"kept")
        assert recorded is not None
        assert decode_schema(recorded).layout == LAYOUT
        changes.append((SCHEMA + b"kept", encode_schema(replace(decode_schema(recorded), layout=0))))
        changes.append((MARKER, task.store.get(MARKER)))
        append(harness, task.plan.changelog, changes)


def append(harness: AppHarness, changelog: TopicPartition, changes: list[Change]) -> None:
    async def write() -> None:
        writer = await harness.log.writer()
        await writer.append({changelog: [(key, value, 0, ()) for key, value in changes]})
        await writer.close()

    harness.run(write())


def layouts(harness: AppHarness) -> set[int]:
    found = [task.store.get(SCHEMA + b"kept") for task in harness.engine.tasks.values()]
    return {decode_schema(raw).layout for raw in found if raw is not None}


def subkeys(harness: AppHarness) -> list[bytes]:
    stores = [task.store for task in harness.engine.tasks.values()]
    scans = [store.scan(*prefix_range(keyed_prefix("kept"))) for store in stores]
    return [parse_keyed(place).subkey for scan in scans for place, _ in scan]


def crashes_until_done(act: Callable[[], None]) -> int:
    """Do it again and again, each time with a crash after the first portion; how often it crashed."""
    crashes = 0
    while True:
        arm(parse("state.migrating:raise@1"))
        try:
            act()
        except InjectedFault:
            crashes += 1
            assert crashes < 40
        else:
            return crashes
        finally:
            disarm()


def check_in_order(harness: AppHarness, service: Service) -> None:
    numbers = [number - 300 for number in range(PER_KEY)]
    for key in range(5):
        assert list(harness.state(service, "kept", key).items()) == [(number, key) for number in numbers]
    assert {sub[0] for sub in subkeys(harness)} == {0x82, 0x83}
    assert len(subkeys(harness)) == 5 * PER_KEY
    assert layouts(harness) == {LAYOUT}


def test_entries_are_moved_into_the_order_of_their_keys_when_a_task_opens() -> None:
    app, events, service = make(MapState[int, int], fill)
    with AppHarness(app) as harness:
        harness.send_many(events, range(5))
        write_former_layout(harness, int)
        harness.crash()
        check_in_order(harness, service)
        harness.crash()
        check_in_order(harness, service)


def test_a_layout_migration_resumes_after_a_crash_with_entries_of_both_layouts() -> None:
    app, events, service = make(MapState[int, int], fill)
    with AppHarness(app) as harness:
        harness.send_many(events, range(5))
        write_former_layout(harness, int)
        crashes = crashes_until_done(harness.crash)
        assert crashes >= 4
        harness.crash()
        check_in_order(harness, service)


def test_values_are_migrated_once_and_entries_moved_also_if_both_are_due_and_crash() -> None:
    app, events, service = make(MapState[int, int], fill)
    newer, _, migrated = make(Annotated[MapState[int, list[int]], Version(2)])

    @migrated.migrate("kept", from_version=1)
    def wrapped(old: int) -> list[int]:
        return [old]

    with AppHarness(app) as harness:
        harness.send_many(events, range(5))
        write_former_layout(harness, int)
        crashes = crashes_until_done(lambda: harness.upgrade(newer))
        assert crashes >= 7
        for key in range(5):
            found = harness.state(service, "kept", key)
            assert list(found.items()) == [(number - 300, [key]) for number in range(PER_KEY)]
        assert layouts(harness) == {LAYOUT}


def test_one_moment_under_two_offsets_becomes_one_entry() -> None:
    morning = datetime(2024, 1, 1, 8, tzinfo=UTC)
    berlin = morning.astimezone(timezone(timedelta(hours=1)))

    def keep(kept: MapState[datetime, int], event: int) -> None:
        kept[morning] = event

    app, events, service = make(MapState[datetime, int], keep)
    with AppHarness(app) as harness:
        harness.send(events, 3)
        write_former_layout(harness, datetime)
        for task in harness.engine.tasks.values():
            for place, _ in list(task.store.scan(*prefix_range(keyed_prefix("kept")))):
                stem = place[: -len(parse_keyed(place).subkey)]
                marker = task.store.get(MARKER)
                append(harness, task.plan.changelog, [(stem + encode_key(berlin), b"9"), (MARKER, marker)])
        harness.crash()
        assert harness.state(service, "kept", 3) == {morning: 9}


def test_entries_keep_when_they_expire() -> None:
    def keep(kept: MapState[int, int], event: int) -> None:
        kept[event] = event

    app, events, service = make(Annotated[MapState[int, int], TTL(minutes=1)], keep)
    with AppHarness(app) as harness:
        harness.send(events, -3)
        harness.advance(seconds=30)
        write_former_layout(harness, int)
        harness.crash()
        assert harness.state(service, "kept", 2) == {-3: -3}
        harness.advance(seconds=31)
        assert harness.state(service, "kept", 2) == {}


def test_keys_of_a_type_that_takes_more_are_written_in_its_order() -> None:
    app, events, service = make(MapState[int, int], fill)
    with AppHarness(app) as harness:
        harness.send_many(events, range(5))
        harness.upgrade(make(MapState[float, int])[0])
        found = harness.state(service, "kept", 3)
        assert [type(number) for number in found][:1] == [float]
        assert list(found) == [float(number - 300) for number in range(PER_KEY)]
        with pytest.raises(SchemaError, match="its keys"):
            harness.upgrade(app)


def test_keys_that_lose_their_order_become_json_again() -> None:
    app, events, service = make(MapState[int, int], fill)
    with AppHarness(app) as harness:
        harness.send_many(events, range(5))
        harness.upgrade(make(MapState[int | str, int])[0])
        assert harness.state(service, "kept", 3) == {number - 300: 3 for number in range(PER_KEY)}
        assert layouts(harness) == {0}

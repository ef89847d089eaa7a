"""A data directory and a savepoint of an earlier version are read and continued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.earlier import story
from tests.integration.ledger import Ledger, expected


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, "embedded")
    yield made
    made.close()


def test_an_earlier_data_directory_of_a_killed_worker_resumes_exactly_once(ledger: Ledger) -> None:
    assert ledger.contents() == expected("embedded", "stored")
    assert ledger.go_on() == expected("embedded", "gone_on")
    assert ledger.overdue() == {f"c{number}": 1 for number in range(13)}


def test_maps_migrate_to_key_order_despite_a_kill(ledger: Ledger) -> None:
    for attempt in (1, 2, 3):
        ledger.run("worker", story.APP, "--no-api", code=-9, TIDEGATE_FAULTS=f"state.migrating:kill@{attempt}")
    assert ledger.go_on() == expected("embedded", "gone_on")
    for line in ledger.json("state", "list", story.APP, "customers", "by_number"):
        numbers = [int(number) for number in line["value"]]
        assert numbers == sorted(numbers)


def test_a_savepoint_with_records_in_flight_is_restored_into_more_tasks(ledger: Ledger) -> None:
    restored = ledger.run("savepoint", "restore", story.APP, "middle", "--partitions", "3")
    assert "customers: 2 tasks before, 3 now" in restored.stderr
    assert "0 records in flight" not in restored.stderr
    ledger.finish()
    assert ledger.contents() == expected("embedded", "restored")

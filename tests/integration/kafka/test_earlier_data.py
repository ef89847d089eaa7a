"""An app on Kafka whose data an earlier version wrote is read and continued."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.earlier import story
from tests.integration.kafka.projects import eventually
from tests.integration.ledger import Ledger, expected
from tidegate_app.kafka.broker import Broker
from tidegate_app.kafka.configuration import free_port


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, "kafka")
    broker = Broker(tmp_path / "broker", port=free_port())  # the stored one may be taken
    broker.start()
    made.broker = broker.url
    yield made
    made.close()
    broker.kill()


@pytest.mark.parametrize("stores", ["local stores", pytest.param("changelogs", marks=pytest.mark.slow)])
def test_an_earlier_app_with_a_killed_worker_resumes_exactly_once(ledger: Ledger, stores: str) -> None:
    if stores == "changelogs":
        shutil.rmtree(ledger.data / "ledger" / "worker-0")
    assert ledger.contents() == expected("kafka", "stored")
    assert ledger.go_on() == expected("kafka", "gone_on")
    assert ledger.overdue() == {f"c{number}": 1 for number in range(13)}


@pytest.mark.slow
def test_a_savepoint_with_records_in_flight_is_restored_into_more_tasks(ledger: Ledger) -> None:
    def restored() -> bool:
        trying = ledger.start("savepoint", "restore", story.APP, "middle", "--partitions", "3")
        return trying.wait() == 0  # the worker that was killed may count until its session is over

    eventually(restored)
    ledger.finish()
    assert ledger.contents() == expected("kafka", "restored")

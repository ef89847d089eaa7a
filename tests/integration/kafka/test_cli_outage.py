"""What a person sees when the broker goes away under a worker, and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.commands import lines
from tests.integration.kafka.projects import KafkaProject
from tidegate_app.kafka import Broker


@pytest.fixture
def broker(private_kafka: Callable[[], Broker]) -> Broker:
    return private_kafka()


@pytest.fixture
def project(tmp_path: Path, broker: Broker) -> Iterator[KafkaProject]:
    made = KafkaProject(tmp_path, broker.url)
    yield made
    made.close()


def test_a_worker_logs_once_that_its_broker_is_unavailable_and_once_that_it_recovered(
    project: KafkaProject, broker: Broker
) -> None:
    with project.worker() as worker:
        project.greet(["ann"])
        project.counted(1)
        before = len(worker.output.splitlines())
        broker.kill()
        worker.wait_for("is unreachable")
        time.sleep(3.0)  # long enough for many attempts, of all who need it
        broker.start()
        worker.wait_for("is reachable again")
        project.greet(["ann"])
        assert project.counted(2) == [("ann", 1), ("ann", 2)]

        said = worker.output.splitlines()[before:]
        assert sum("is unreachable" in line for line in said) == 1, said
        assert sum("is reachable again" in line for line in said) == 1, said
        assert not [line for line in said if "aiokafka" in line], said
        assert "Traceback" not in worker.output
        assert len(said) <= 6, said


def test_a_send_reports_what_was_acknowledged_when_its_broker_goes_away(project: KafkaProject, broker: Broker) -> None:
    big = project.directory / "big.jsonl"
    big.write_text(lines({"name": f"n{number}", "text": "x" * 100} for number in range(300_000)))
    sending = project.start(
        "send", "hello.py", project.topic("greetings"), stdin=big, TIDEGATE_KAFKA_TRANSACTION_TIMEOUT="3"
    )
    project.json("tail", "hello.py", project.topic("greetings"), "--from-beginning", "--count", "1")
    broker.kill()

    assert sending.wait() == 1
    assert "before the error." in sending.output
    assert "Either all or none of the last" in sending.output
    assert "check with 'tidegate tail' before you send them again" in sending.output
    assert len(sending.output.splitlines()) <= 5

"""Savepoints on a real broker: from the embedded log to Kafka and back, under load, with a worker of an older run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka.projects import eventually
from tests.integration.shop import KafkaShop
from tidegate_app.kafka.plugin import SharedKafka


@pytest.fixture
def shop(tmp_path: Path, kafka: SharedKafka) -> Iterator[KafkaShop]:
    made = KafkaShop(tmp_path, kafka.url)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_app_moves_from_the_embedded_log_to_kafka_and_back(shop: KafkaShop) -> None:
    """With every move it gets another parallelism; what was handled before stays counted, once."""
    embedded: dict[str, Any] = {"TIDEGATE_BROKER": "embedded://"}
    start = f"{shop.name}-orders=earliest"
    with shop.worker("shop.py", **embedded):
        shop.order(60, **embedded)
        shop.sold(60, **embedded)
        shop.run("savepoint", "create", "shop.py", "one", "--stop", **embedded)

    refused = shop.run("savepoint", "restore", "shop.py", "one", code=1)
    assert f"--start {start}" in refused.stderr
    restored = shop.run("savepoint", "restore", "shop.py", "one", "--start", start, "--partitions", "5")
    assert "The savepoint is from another log" in restored.stderr
    shop.order(40)
    assert "customers × 5" in shop.finish()
    shop.check()

    with shop.worker("shop.py"):
        shop.run("savepoint", "create", "shop.py", "two", "--stop")
    latest = f"{shop.name}-orders=latest"
    shop.run("savepoint", "restore", "shop.py", "two", "--start", latest, "--partitions", "2", **embedded)
    shop.order(30, **embedded)
    assert "customers × 2" in shop.finish(**embedded)
    shop.check(**embedded)


@pytest.mark.slow
def test_workers_stop_with_a_savepoint_and_restart_with_another_parallelism(shop: KafkaShop) -> None:
    """Under load: what comes in between waits, and no outside reader sees anything twice."""
    first, second = (shop.start("worker", "shop.py") for _ in range(2))
    for worker in (first, second):
        worker.wait_for("recovered")
    shop.order(300)
    sending = shop.start(
        "send", "shop.py", f"{shop.name}-orders", stdin="".join(f"{line}\n" for line in shop.lines(300, 1500))
    )
    shop.sold(400)
    refused = shop.run("savepoint", "restore", "shop.py", "none", code=1)
    assert "no checkpoint or savepoint" in refused.stderr
    shop.run("savepoint", "create", "shop.py", "final", "--stop")
    assert [worker.wait() for worker in (first, second)] == [0, 0]
    assert sending.wait() == 0
    shop.sent = 1500

    struck = shop.directory / "struck"
    for point in ("restore.loaded", "restore.begun"):
        shop.run(
            "savepoint", "restore", "shop.py", "final", "--partitions", "4",
            code=-signal.SIGKILL, TIDEGATE_FAULTS=f"{point}:kill@1", TIDEGATE_FAULTS_LOG=str(struck),
        )  # fmt: skip
    assert struck.read_text().split() == ["restore.loaded:kill@1", "restore.begun:kill@1"]
    assert "customers × 4" in shop.finish()
    shop.check()
    assert shop.billed() == list(range(1500))


def test_a_worker_of_the_old_run_is_fenced_after_a_restore_and_stops_with_an_error(shop: KafkaShop) -> None:
    zombie = shop.start("worker", "shop.py")
    zombie.wait_for("recovered")
    shop.order(100)
    shop.sold(100)
    shop.run("savepoint", "create", "shop.py", "one")
    shop.order(50)
    os.kill(zombie.pid, signal.SIGSTOP)
    try:
        refused = shop.run("savepoint", "restore", "shop.py", "one", "--partitions", "2", code=1)
        assert "its session timeout" in refused.stderr

        def restored() -> bool:
            trying = shop.start("savepoint", "restore", "shop.py", "one", "--partitions", "2")
            return trying.wait() == 0

        eventually(restored, seconds=60)
        shop.order(50)
        shop.finish()
    finally:
        os.kill(zombie.pid, signal.SIGCONT)
    assert zombie.wait() == 1
    assert f"this worker belongs to run 1 of '{shop.name}', but the current run is 2" in zombie.output
    shop.order(20)
    shop.finish()
    shop.check()

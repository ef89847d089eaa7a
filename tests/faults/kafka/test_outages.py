"""A broker that is killed, restarted or hangs under load: workers stall and then recover without intervention."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.kafka.test_rebalances import end, goes_on, load, share
from tests.faults.support import oracle
from tests.faults.support.kafka import SESSION
from tests.faults.support.sending import Sending
from tidegate_app.kafka import Broker

SHORT = {"TIDEGATE_KAFKA_TRANSACTION_TIMEOUT": "2", "TIDEGATE_KAFKA_REQUEST_TIMEOUT": "2"}
"""So little patience that commits fail, and tasks are opened again, before the broker is back."""
LONG = {"TIDEGATE_KAFKA_TRANSACTION_TIMEOUT": "60"}


@pytest.mark.slow
@pytest.mark.parametrize("patience", [SHORT, LONG], ids=["impatient", "patient"])
@pytest.mark.parametrize("how", ["killed", "stopped in order", "paused"])
def test_a_worker_waits_for_an_unavailable_broker(
    new_kafka_world: NewKafkaWorld,
    private_kafka: Callable[[], Broker],
    seed: int,
    how: str,
    patience: dict[str, str],
) -> None:
    broker = private_kafka()
    world = new_kafka_world("alarms", broker=broker.url, partitions=4, **patience)
    with Sending(world, "entries", load(seed, waiting=0.05)):
        lives = [world.join(), world.join()]
        share(world, lives)
        for _ in range(2):
            goes_on(world, lambda: len(world.notes), 100)
            if how == "paused":
                broker.pause()
                time.sleep(2 * SESSION)
                broker.resume()
            else:
                broker.restart(kill=how == "killed")
        goes_on(world, lambda: len(world.notes), 300)
        assert not any(life.over for life in lives), world.with_seed("a worker has given up")
    end(world, *lives)
    world.drain()
    oracle.check_alarms(world, world.look())


@pytest.mark.slow
def test_workers_and_broker_killed_together_recover(
    new_kafka_world: NewKafkaWorld, private_kafka: Callable[[], Broker], seed: int
) -> None:
    """As if the machine had lost power, except that the disk has what was written."""
    broker = private_kafka()
    world = new_kafka_world("ledger", broker=broker.url, partitions=4)
    for round_ in range(3):
        with Sending(world, "entries", load(seed + round_, waiting=0.05)):
            lives = [world.join(), world.join()]
            share(world, lives)
            goes_on(world, lambda: len(world.notes), 100)
            for life in lives:
                life.signal(signal.SIGKILL)
            broker.kill()
        broker.start()
    world.drain()
    oracle.check_ledger(world, world.look())

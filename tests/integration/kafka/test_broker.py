"""A broker of our own, through what tests do to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tidegate.jvm.file_lock import wait_until_free
from tidegate_app.kafka import Broker
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.errors import BrokerDiedError, NeverStartedError, OtherPortError, PortTakenError

OWNER = """
import sys, time
from pathlib import Path
from tidegate_app.kafka import Broker
broker = Broker(Path(sys.argv[1]))
broker.start()
print("started", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("module") / "kafka with a space")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Of a broker that a test starts by other means."""
    yield tmp_path / "kafka"
    Broker(tmp_path / "kafka").kill()


async def send(address: str, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(topic, value)


async def receive(address: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
    async with consumer:
        return [(await consumer.getone()).value for _ in range(count)]


async def test_records_and_the_address_survive_a_kill_and_a_restart(broker: Broker) -> None:
    topic, address, first = f"kept-{uuid.uuid4().hex}", broker.address, broker.pid
    await send(address, topic, b"one")

    broker.restart(kill=True)
    second = broker.pid
    await send(address, topic, b"two")
    broker.restart()

    assert len({first, second, broker.pid}) == 3
    assert broker.address == address
    assert await receive(address, topic, 2) == [b"one", b"two"]


def test_only_loopback_is_listened_on(broker: Broker) -> None:
    listening = [each for each in psutil.Process(broker.pid).net_connections() if each.status == psutil.CONN_LISTEN]

    assert {each.laddr.ip.removeprefix("::ffff:") for each in listening} == {"127.0.0.1"}
    assert broker.port in {each.laddr.port for each in listening}


def test_a_paused_broker_is_running_but_does_not_respond(broker: Broker) -> None:
    try:
        assert broker.pause()
        assert psutil.Process(broker.pid).status() == psutil.STATUS_STOPPED
        assert broker.running
        assert not broker.answers(0.5)
    finally:
        assert broker.resume()
    broker.wait_until_ready()


def test_starting_a_running_broker_has_no_effect(broker: Broker) -> None:
    pid = broker.pid

    assert Broker(broker.data).start() is False
    assert Broker(broker.data, port=broker.port).start() is False
    with pytest.raises(OtherPortError, match=str(broker.port)):
        Broker(broker.data, port=broker.port + 1).start()

    assert broker.pid == pid


def test_a_port_in_use_is_named_and_no_files_are_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        taken = Broker(tmp_path / "kafka", port=port)
        with pytest.raises(PortTakenError, match=f"127.0.0.1:{port}.*--port"):
            taken.start()

    assert not taken.running
    with pytest.raises(NeverStartedError):
        _ = taken.address


def test_a_paused_broker_can_be_stopped_and_a_dying_broker_shows_its_last_output(
    private_kafka: Callable[[], Broker],
) -> None:
    broker = private_kafka()
    broker.pause()

    assert broker.stop() is True
    assert broker.stop() is False
    assert "shut down completed" in broker.log.read_text()

    (broker.data / "storage" / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=another\n")
    with pytest.raises(BrokerDiedError, match="77") as raised:
        broker.start()

    assert str(broker.log) in str(raised.value)
    assert not broker.running


def test_concurrent_starts_launch_one_broker(data: Path) -> None:
    port = free_port()
    with ThreadPoolExecutor() as threads:
        started = list(threads.map(lambda _: Broker(data, port=port).start(daemon=True), range(2)))

    assert sorted(started) == [False, True]


def test_a_broker_ends_with_its_owner(data: Path) -> None:
    broker = Broker(data)
    with subprocess.Popen([sys.executable, "-c", OWNER, str(data)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"started\n"
        assert broker.answers()

        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()

    assert wait_until_free(data / "broker.lock", 20.0)
    assert not broker.running

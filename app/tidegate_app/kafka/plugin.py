"""Fixtures for pytest: a real broker. In a conftest.py: pytest_plugins = ("tidegate_app.kafka.plugin",)

`kafka` is one broker for the whole run, shared by all processes of pytest-xdist; the first test that needs it starts
it, and it ends with the run, however that ends. With TIDEGATE_TEST_BROKER=kafka://HOST:PORT it is that one. Tests share
it, so each uses names of its own. `private_kafka` makes brokers that a test may stop, kill and pause.

When no broker can be started, tests that need one fail. They are never skipped.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidegate.jvm.errors import JvmError
from tidegate.jvm.file_lock import is_locked, locked, open_locked, wait_until_free
from tidegate_app.kafka.broker import Broker
from tidegate_app.kafka.errors import BrokerError, ExternalBrokerError, KafkaError
from tidegate_app.kafka.paths import test_broker
from tidegate_app.kafka.probe import answers

__all__ = ("SharedKafka", "kafka", "private_kafka")

_SCHEME = "kafka://"
_INPUT = "tidegate_kafka_run"
_PREFIX = "tidegate-kafka-"
_LOCK = "run.lock"
_OLD = 3600.0
"""Seconds."""
_RUN = pytest.StashKey["_Run"]()


@dataclass(frozen=True)
class SharedKafka:
    """A broker that other tests use at the same time."""

    address: str
    """host:port"""

    @property
    def url(self) -> str:
        """What --broker takes."""
        return f"{_SCHEME}{self.address}"


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> SharedKafka:
    """The broker of this run."""
    external = test_broker()
    if external is not None:
        return _external(external)
    return _shared(Path(request.config.stash[_RUN].directory))


@pytest.fixture
def private_kafka(tmp_path: Path) -> Iterator[Callable[[], Broker]]:
    """Starts a broker that is this test's alone, at each call."""
    made: list[Broker] = []

    def start() -> Broker:
        made.append(Broker(tmp_path / f"kafka-{len(made)}"))
        made[-1].start()
        return made[-1]

    yield start
    for broker in made:
        broker.kill()


def _external(named: str) -> SharedKafka:
    found = SharedKafka(named.removeprefix(_SCHEME))
    if not answers(found.address, 10.0):
        raise ExternalBrokerError(named)
    return found


def _shared(run: Path) -> SharedKafka:
    """Whoever comes first starts it; a failure is remembered, so that it does not cost each process a minute."""
    broker = Broker(run / "broker", owner=run / _LOCK)
    failure = run / "failure"
    with locked(run / "start.lock"):
        if failure.exists():
            raise BrokerError(failure.read_text())
        try:
            broker.start()
        except (KafkaError, JvmError) as error:
            failure.write_text(str(error))
            raise
    return SharedKafka(broker.address)


# ------------------------------------------------------------------------------------------------------------- the run


class _Run:
    """A directory that belongs to one run of pytest; its first process, and nobody else, holds the lock in it."""

    def __init__(self, directory: str | None) -> None:
        if directory is None:
            _sweep()
        self.directory = directory or tempfile.mkdtemp(prefix=_PREFIX)
        self._lock = None if directory else open_locked(Path(self.directory) / _LOCK)

    def end(self) -> None:
        """Without its lock the broker's guard ends it."""
        if self._lock is None:
            return
        os.close(self._lock)
        wait_until_free(Path(self.directory) / "broker" / "broker.lock", 30.0)
        shutil.rmtree(self.directory, ignore_errors=True)


def _sweep() -> None:
    """Remove what runs left behind that were killed. One that is only just beginning has no lock yet, but is young."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if time.time() - left.stat().st_mtime > _OLD and not is_locked(left / _LOCK):
            shutil.rmtree(left, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {})
    config.stash[_RUN] = _Run(given.get(_INPUT))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Tell a process of pytest-xdist where the run is."""
    node.workerinput[_INPUT] = node.config.stash[_RUN].directory  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.end()

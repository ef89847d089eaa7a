"""Pytest fixtures with a real broker. In a conftest.py: pytest_plugins = ("tidegate_app.kafka.plugin",)

`kafka` is one broker for the whole test run, shared by all processes of pytest-xdist. The first test that needs it
starts it, and its guard kills it when the run ends. With TIDEGATE_TEST_BROKER=kafka://HOST:PORT that broker is used
instead. Tests share it, so each uses unique topic names. `private_kafka` starts brokers that a test may stop, kill and
pause.

If no broker can be started, tests that need one fail. They are never skipped.
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
    """A broker that is shared with other tests."""

    address: str
    """host:port"""

    @property
    def url(self) -> str:
        """The value of --broker."""
        return f"{_SCHEME}{self.address}"


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> SharedKafka:
    """The broker of this test run."""
    external = test_broker()
    if external is not None:
        return _external(external)
    return _shared(Path(request.config.stash[_RUN].directory))


@pytest.fixture
def private_kafka(tmp_path: Path) -> Iterator[Callable[[], Broker]]:
    """Each call starts a broker for this test only."""
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
    """The first process starts the broker; a failure is recorded, so that the others do not wait for the timeout."""
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


# ------------------------------------------------------------------------------------------------------------ test run


class _Run:
    """The directory of one pytest run; only its first process holds the lock in it."""

    def __init__(self, directory: str | None) -> None:
        if directory is None:
            _sweep()
        self.directory = directory or tempfile.mkdtemp(prefix=_PREFIX)
        self._lock = None if directory else open_locked(Path(self.directory) / _LOCK)

    def end(self) -> None:
        """Release the lock: the guard then kills the broker."""
        if self._lock is None:
            return
        os.close(self._lock)
        wait_until_free(Path(self.directory) / "broker" / "broker.lock", 30.0)
        shutil.rmtree(self.directory, ignore_errors=True)


def _sweep() -> None:
    """Remove the directories of killed runs. A starting run may not hold its lock yet: recent directories are kept."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if time.time() - left.stat().st_mtime > _OLD and not is_locked(left / _LOCK):
            shutil.rmtree(left, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {})
    config.stash[_RUN] = _Run(given.get(_INPUT))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Pass the run's directory to a process of pytest-xdist."""
    node.workerinput[_INPUT] = node.config.stash[_RUN].directory  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.end()

"""The workers of a soak: processes that are killed, put to sleep, stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ("APP", "SESSION", "Worker")

SESSION: Final = 3.0
"""Seconds without a sign of life after which others take over."""
ROOT: Final = Path(__file__).parents[2]
_NO_BROKER: Final = ("no broker answers at", "no success within")
APP: Final = "examples.tinder_match:app"


class Worker:
    """One of several on a machine. What it writes is kept over its lives."""

    def __init__(self, name: str, directory: Path, broker: str, partitions: int) -> None:
        self.name = name
        self._directory, self._broker, self._partitions = directory, broker, partitions
        self._output = directory / f"{name}.log"
        self.struck = directory / f"{name}.faults"
        """What it ran into."""
        self._process: subprocess.Popen[bytes] | None = None
        self.asleep = False
        self.lives = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, faults: str = "") -> None:
        """`faults`: what it is to run into, as TIDEGATE_FAULTS has it."""
        self.lives += 1
        self.asleep = False
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "TIDEGATE_KAFKA_SESSION_TIMEOUT": str(SESSION),
            "TIDEGATE_KAFKA_TRANSACTION_TIMEOUT": "15",
            "TIDEGATE_KAFKA_REQUEST_TIMEOUT": "10",
            "TIDEGATE_KAFKA_CONNECT_TIMEOUT": "120",
            "TIDEGATE_PARTITIONS": str(self._partitions),
            "TIDEGATE_FLUSH_SECONDS": "3",
            "TIDEGATE_FAULTS": faults,
            "TIDEGATE_FAULTS_LOG": str(self.struck),
        }
        command = [sys.executable, "-m", "tidegate_app", "worker", APP, "--broker", self._broker]
        with self._output.open("ab") as output:
            output.write(f"-- life {self.lives}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                [*command, "--data", str(self._directory / "data")],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, seconds: float) -> None:
        """Until it ends, for so long at most."""
        with suppress(subprocess.TimeoutExpired):
            self._wait(seconds)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait(10)

    def stop(self) -> int:
        """In order. Returns its exit status."""
        self.wake()
        self._signal(signal.SIGTERM)
        return self._wait(60)

    def sleep(self) -> None:
        self._signal(signal.SIGSTOP)
        self.asleep = True

    def wake(self) -> None:
        self._signal(signal.SIGCONT)
        self.asleep = False

    @property
    def gave_up(self) -> bool:
        """It could not start without a broker: a supervisor restarts such a worker."""
        if self._process is None or self._process.poll() != 1:
            return False
        last = self._output.read_text().rpartition("-- life ")[2]
        return "recovered" not in last and any(words in last for words in _NO_BROKER)

    def died(self) -> str | None:
        """The end of its output, if it ended unexpectedly."""
        if self._process is None or self._process.poll() in (None, -signal.SIGKILL):
            return None
        return f"{self.name} ended with {self._process.returncode}:\n{self._output.read_text()[-3000:]}"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

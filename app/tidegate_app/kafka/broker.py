"""A Kafka broker: one process on one data directory."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Final

from tidegate.jvm.file_lock import is_locked, open_locked, try_lock, wait_until_free
from tidegate_app.kafka.configuration import HOST, free_port, is_free, log_configuration, server_properties
from tidegate_app.kafka.data_layout import Layout
from tidegate_app.kafka.errors import (
    BrokerDiedError,
    BrokerSilentError,
    NeverStartedError,
    OtherPortError,
    PortTakenError,
    StuckError,
)
from tidegate_app.kafka.probe import answers
from tidegate_app.kafka.processes import Programs, start_guard

__all__ = ("Broker",)

READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
_PAUSE: Final = 0.05


class Broker:
    """A single Kafka node in a directory of its own, on loopback. The methods block.

    The broker's process inherits a file lock and holds it until it ends; whether the lock is held tells whether the
    broker runs. Several Broker objects, in any processes, may refer to one directory. The directory stores the port, so
    that a restarted broker has the same address.
    """

    def __init__(self, data: Path, *, port: int | None = None, owner: Path | None = None) -> None:
        """port: by default the stored one, else a free one. owner: a file that stays locked while the broker is needed;
        by default a lock of this process."""
        self._layout = Layout(data.absolute())
        self._wanted_port = port
        self._owner = owner
        self._held: tuple[Path, int] | None = None

    # -------------------------------------------------------------------------------------------------------- status

    @property
    def data(self) -> Path:
        return self._layout.data

    @property
    def log(self) -> Path:
        return self._layout.log

    @property
    def known_port(self) -> int | None:
        """The stored port, if the broker was ever started."""
        return self._layout.remembered_port()

    @property
    def port(self) -> int:
        known = self.known_port
        if known is None:
            raise NeverStartedError(self.data)
        return known

    @property
    def address(self) -> str:
        """host:port"""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The value of --broker."""
        return f"kafka://{self.address}"

    @property
    def running(self) -> bool:
        """Whether the process runs or is being started."""
        return is_locked(self._layout.lock)

    @property
    def pid(self) -> int | None:
        """The process id, if the broker runs; waits for it while the broker is being started."""
        deadline = time.monotonic() + READY_SECONDS
        while self.running:
            try:
                return int(self._layout.pid.read_text())
            except (FileNotFoundError, ValueError):
                if time.monotonic() > deadline:
                    raise StuckError(self._layout.lock) from None
                time.sleep(_PAUSE)
        return None

    def answers(self, seconds: float = 2.0) -> bool:
        known = self.known_port
        return known is not None and self.running and answers(f"{HOST}:{known}", seconds)

    # ------------------------------------------------------------------------------------------------------ starting

    def start(self, *, daemon: bool = False) -> bool:
        """Start the broker and wait until it responds. False: it was running already. daemon: it outlives its owner.

        1. Find Java and the jars.
        2. Take the lock that the process inherits: it serializes concurrent starts.
        3. Write the configuration, and format new storage.
        4. Start the guard, then the process. A process that does not respond is killed.
        """
        programs = Programs()
        lock = self._lock_or_find()
        if lock is None:
            self.wait_until_ready()
            return False
        try:
            self._launch(programs, lock, daemon=daemon)
        except BaseException:
            self._disown()
            raise
        finally:
            os.close(lock)
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return True

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not self.answers():
            if not self.running:
                raise BrokerDiedError(self.log, self._layout.last_lines())
            if time.monotonic() > deadline:
                raise BrokerSilentError(self.address, seconds, self.log, self._layout.last_lines())
            time.sleep(_PAUSE)

    def _lock_or_find(self) -> int | None:
        """The lock; or None if a broker process holds it, on the wanted port."""
        while (lock := try_lock(self._layout.lock)) is None:
            if self.pid is not None:  # otherwise another process held the lock briefly, without a broker
                if self._wanted_port not in (None, self.port):
                    raise OtherPortError(self.data, self.port, self._wanted_port)
                return None
        self._layout.pid.unlink(missing_ok=True)
        return lock

    def _launch(self, programs: Programs, lock: int, *, daemon: bool) -> None:
        port = self._wanted_port or self.known_port or free_port()
        if not is_free(port):
            raise PortTakenError(port)
        self._configure(port)
        if not self._layout.is_formatted:
            programs.format_storage(self._layout)
        if not daemon:
            start_guard(self._layout, self._owner or self._own())
        programs.start_broker(self._layout, lock)

    def _configure(self, port: int) -> None:
        """The controller's port may change at each start: only the broker itself connects to it."""
        properties = server_properties(port, free_port(), self._layout.storage)
        self._layout.properties.write_text(properties, encoding="utf-8")
        self._layout.log_configuration.write_text(log_configuration(), encoding="utf-8")
        self._layout.remember_port(port)

    # ------------------------------------------------------------------------------------------------------ stopping

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop the broker in order, and kill it after a timeout. False: it was not running."""
        was_running = self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process would not handle the signal
        if not wait_until_free(self._layout.lock, seconds):
            self.kill()
        self._disown()
        return was_running

    def kill(self) -> bool:
        """Kill the process (SIGKILL). False: it was not running."""
        was_running = self._signal(signal.SIGKILL)
        if not wait_until_free(self._layout.lock, STOP_SECONDS):
            raise StuckError(self._layout.lock)
        self._disown()
        return was_running

    def restart(self, *, kill: bool = False) -> None:
        """Restart with the same port and data."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def pause(self) -> bool:
        """Suspend the process (SIGSTOP): connections stay open without responses. False: it was not running."""
        pid = self.pid
        if pid is None or not self._signal(signal.SIGSTOP):
            return False
        while self.running and not _is_halted(pid):  # each thread stops when it is next scheduled
            time.sleep(_PAUSE)
        return self.running

    def resume(self) -> bool:
        return self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> bool:
        pid = self.pid
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it ended just now
            return False
        return True

    # --------------------------------------------------------------------------------------------------------- owner

    def _own(self) -> Path:
        """A lock file for this start only, so that the guard of an earlier start cannot mistake it for its own."""
        path = self.data / f"owner-{uuid.uuid4().hex}.lock"
        self._held = path, open_locked(path)
        return path

    def _disown(self) -> None:
        """Release the guard: remove the file before the lock is released, as the guard expects."""
        if self._held is not None:
            path, descriptor = self._held
            self._held = None
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _is_halted(pid: int) -> bool:
    """Whether all threads are stopped; always true without /proc."""
    return all(_state(path) == "T" for path in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(path: Path) -> str:
    try:
        return (
            path.read_text().rpartition(")")[2].split()[0]
        )  # the fields follow the name, which may contain any character
    except (FileNotFoundError, ProcessLookupError):
        return "T"  # the thread has ended

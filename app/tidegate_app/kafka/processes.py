"""Starts the processes of a broker: Kafka's Java programs, and the guard that kills it when its owner ends."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidegate.jvm.java import find_java
from tidegate_app.kafka import guard
from tidegate_app.kafka.configuration import JVM_OPTIONS
from tidegate_app.kafka.data_layout import Layout
from tidegate_app.kafka.errors import FormatError
from tidegate_app.kafka.jars import ensure_jars

__all__ = ("Programs", "start_guard")

_SPAWN: Final = 'pid_file=$1; shift; "$@" & echo $! > "$pid_file"'
"""Detaches the process: it has no parent to wait for it, so any process can start it and any other can kill it."""

_LAST_LINES: Final = 20


class Programs:
    """Kafka's Java programs."""

    def __init__(self) -> None:
        self._java = [str(find_java()), "-cp", f"{ensure_jars()}/*"]

    def format_storage(self, layout: Layout) -> None:
        """Format new storage, after deleting the remains of an interrupted format."""
        shutil.rmtree(layout.storage, ignore_errors=True)
        quick = ["-Xmx128m", "-XX:TieredStopAtLevel=1"]
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", _new_id(), "--config", str(layout.properties)]
        done = subprocess.run(  # noqa: S603 - our own arguments
            [*self._java, *quick, *tool], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise FormatError(layout.storage, (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:])

    def start_broker(self, layout: Layout, lock: int) -> None:
        """Start the broker's process, which inherits the lock."""
        logging = [f"-Dbroker.log={layout.log}", f"-Dlog4j2.configurationFile={layout.log_configuration}"]
        broker = ["kafka.Kafka", str(layout.properties)]
        _start([*self._java, *JVM_OPTIONS, *logging, *broker], layout, layout.pid, inherit=(lock,))


def start_guard(layout: Layout, owner: Path) -> None:
    arguments = [str(path) for path in (guard.__file__, owner, layout.lock, layout.pid)]
    _start([sys.executable, "-I", "-S", *arguments], layout, layout.guard_pid)


def _start(command: Sequence[str], layout: Layout, pid_file: Path, *, inherit: Sequence[int] = ()) -> None:
    with layout.output.open("ab") as output:
        subprocess.run(  # noqa: S603 - our own arguments
            ["/bin/sh", "-c", _SPAWN, "sh", str(pid_file), *command],
            cwd=layout.data,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherit,
            start_new_session=True,  # Ctrl-C in a terminal reaches the owner only, which then stops the broker in order
            check=True,
        )


def _new_id() -> str:
    """A cluster id in Kafka's format. A leading dash would be parsed as an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not made.startswith("-"):
            return made

"""Writes the stored data beside this file with the `tidegate` that is on the PATH. See README.md.

usage: python -m tests.integration.earlier.make DIRECTORY    (an empty one, in which everything happens)
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.earlier import story
from tidegate_app.kafka.broker import Broker

HERE = Path(__file__).parent
SETTINGS = {"TIDEGATE_COMMIT_INTERVAL": "0.05", "TIDEGATE_RETENTION_HOURS": "0", "TIDEGATE_KAFKA_SESSION_TIMEOUT": "6"}
LEFT_OUT = ("control.sock", "LOG", "LOG.old", "server.properties", "log4j2.xml", "guard.pid")


class Ledger:
    """The app in a directory."""

    def __init__(self, directory: Path, broker: str = "embedded://") -> None:
        self.directory, self.environment = directory, {**os.environ, **SETTINGS, "TIDEGATE_BROKER": broker}
        shutil.copy(HERE / story.APP, directory / story.APP)

    def run(self, *arguments: str, stdin: str = "") -> str:
        command = ["tidegate", *arguments]
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            input=stdin,
            text=True,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout

    @contextmanager
    def worker(self, end: signal.Signals, **environment: str) -> Iterator[None]:
        command = ["tidegate", "worker", story.APP, "--no-api"]
        log = self.directory.with_suffix(f".worker-{time.monotonic_ns()}")
        with log.open("w") as stderr:
            process = subprocess.Popen(
                command, cwd=self.directory, env={**self.environment, **environment}, stderr=stderr
            )
        try:
            while "recovered" not in log.read_text():
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.send_signal(end)
            process.wait()

    def begin(self) -> None:
        """What there is to recover: a checkpoint, a savepoint with records in flight, and a worker that was killed."""
        with self.worker(signal.SIGTERM):
            self.run("send", story.APP, "ledger-orders", stdin=story.orders(0, 150))
            self.run("tail", story.APP, "ledger-totals", "--from-beginning", "--count", "147")
            story.withdraw(self.run, "c1", 5, "first")
            self.run("checkpoint", "trigger", story.APP)
        with self.worker(signal.SIGKILL, LEDGER_SLOW="1"):
            self.run("send", story.APP, "ledger-orders", stdin=story.orders(150, 300))
            self.run("savepoint", "create", story.APP, "middle")
            self.run("tail", story.APP, "ledger-totals", "--from-beginning", "--count", "260")

    def contents(self) -> dict[str, Any]:
        return story.contents(self.run)

    def go_on(self) -> dict[str, Any]:
        with self.worker(signal.SIGTERM):
            replies = story.replies(self.run)
            self.run("send", story.APP, "ledger-orders", stdin=story.orders(*story.MORE))
        self.run("worker", story.APP, "--until-end", "--no-api")
        return {"replies": replies, **self.contents()}

    def restore(self) -> dict[str, Any]:
        if "kafka" in self.environment["TIDEGATE_BROKER"]:
            time.sleep(8)  # the worker that was killed counts until its session is over
        self.run("savepoint", "restore", story.APP, "middle", "--partitions", "3")
        self.run("worker", story.APP, "--until-end", "--no-api")
        return self.contents()


ACTS: dict[str, Callable[[Ledger], dict[str, Any]]] = {
    "stored": Ledger.contents,
    "gone_on": Ledger.go_on,
    "restored": Ledger.restore,
}


def embedded(directory: Path) -> dict[str, Any]:
    first = directory / "embedded"
    first.mkdir()
    Ledger(first).begin()
    pack(first, "embedded")
    return {name: act(Ledger(unpack("embedded", directory / f"embedded-{name}"))) for name, act in ACTS.items()}


def kafka(directory: Path) -> dict[str, Any]:
    first = directory / "kafka"
    first.mkdir()
    with running(first) as url:
        Ledger(first, url).begin()
    pack(first, "kafka")
    found: dict[str, Any] = {}
    for name, act in ACTS.items():
        copy = unpack("kafka", directory / f"kafka-{name}")
        with running(copy) as url:
            found[name] = act(Ledger(copy, url))
    return found


@contextmanager
def running(directory: Path) -> Iterator[str]:
    broker = Broker(directory / "broker")
    broker.start()
    yield broker.url
    broker.stop()


def pack(directory: Path, name: str) -> None:
    def wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        file = Path(info.name).name
        left_out = file in LEFT_OUT or file.startswith(("broker.", "owner-", "port")) or "__pycache__" in info.name
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return None if left_out else info

    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as archive:
        for part in (".tidegate", "broker"):
            if (directory / part).exists():
                archive.add(directory / part, part, filter=wanted)


def unpack(name: str, directory: Path) -> Path:
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


def main() -> None:
    directory = Path(sys.argv[1])
    found = {"embedded": embedded(directory), "kafka": kafka(directory)}
    with lzma.open(HERE / "expected.json.xz", "wt") as file:
        json.dump(found, file, sort_keys=True)


if __name__ == "__main__":
    main()

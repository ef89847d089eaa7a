"""A project in a directory, and commands that run in it as processes.

Importing Faust takes a second, and a test runs many commands. So a server process imports once what all of them need,
and forks one process for each: otherwise they are what `tidegate` starts, with exit codes, signals and output.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

from tidegate import faults

__all__ = ("Done", "Project", "Running", "lines", "prepared")

SECONDS = 60.0
_LOADED = [
    "pytest",  # what the processes of multiprocessing import as their main module, when pytest started them
    "tidegate.app",
    "tidegate.client.remote_actors",
    "tidegate.faust_host.hosted_app",
    "tidegate.faust_host.transport",
    "tidegate.faust_host.worker",
    "tidegate.host.engine_runner",
    "tidegate.host.topic_publisher",
    "tidegate.logs.kafka.membership",
    "tidegate.logs.kafka.observer",
    "tidegate.testing",
    "tidegate_api.server",
    "tidegate_app.cli",
    *(f"tidegate_app.commands.{name}" for name in ("reset", "savepoint", "send", "state", "tail", "topics", "worker")),
    "tidegate_app.actions.services",
    "tidegate_app.actions.topics",
    "tidegate_app.app_loader",
    "tidegate_app.actions.state",
    "tidegate_app.process_pool",
    "tidegate_app.actions.reset",
    "tidegate_app.actions.savepoint",
    "tidegate_app.actions.send",
    "tidegate_app.actions.tail",
    "tidegate_app.worker",
    # Faust imports these when an app is made, or started.
    "faust.app.router",
    "faust.assignor.leader_assignor",
    "faust.cli.worker",
    "faust.fixups.django",
    "faust.tables.manager",
    "faust.tables.recovery",
    "fsspec.implementations.local",
    "rich.table",
    "uvicorn.lifespan.off",
    "uvloop",
    "tests.integration.frozen",
]


def lines(values: Iterable[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class Running:
    """A command that runs. Its output is in files."""

    def __init__(
        self, command: list[str], directory: Path, environment: Mapping[str, str], place: Path, stdin: Path | int
    ):
        self._stdout, self._stderr = place.with_suffix(".out"), place.with_suffix(".err")
        self._stdout.touch()
        self._stderr.touch()
        self._process = prepared().Process(
            target=_run, args=(command, directory, dict(environment), stdin, self._stdout, self._stderr)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def output(self) -> str:
        return self._stderr.read_text()

    def wait(self) -> int:
        """Wait for its end and return its exit code; negative: the signal that ended it."""
        self._process.join(SECONDS)
        assert self._process.exitcode is not None, f"it does not end:\n{self.output}"
        return self._process.exitcode

    def wait_for(self, text: str, seconds: float = SECONDS) -> str:
        """Wait until it has printed this text."""
        deadline = time.monotonic() + seconds
        while text not in self.output + self.stdout:
            assert self.alive, f"it ended before it said {text!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"it does not say {text!r}:\n{self.output}"
            time.sleep(0.01)
        return self.output

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        os.kill(self.pid, number)
        return self.wait()

    def kill(self) -> None:
        if self.alive:
            self._process.kill()
            self._process.join()


class Project:
    def __init__(self, directory: Path, **files: str) -> None:
        self.directory = directory
        self._started: list[Running] = []
        for name, text in files.items():
            (directory / f"{name}.py").write_text(text, encoding="utf-8")

    @property
    def data(self) -> Path:
        return self.directory / ".tidegate"

    def start(self, *arguments: str, stdin: str | Path = "", program: str = "tidegate", **environment: str) -> Running:
        """Start `tidegate`, or `faust`."""
        place = self.directory / f"command-{len(self._started)}"
        source = stdin if isinstance(stdin, Path) else place.with_suffix(".in")
        if isinstance(stdin, str):
            source.write_text(stdin)
        running = Running([program, *arguments], self.directory, environment, place, source)
        self._started.append(running)
        return running

    def run(self, *arguments: str, stdin: str | Path = "", code: int = 0, **environment: str) -> Done:
        """Run `tidegate` to its end; code: how it must end."""
        running = self.start(*arguments, stdin=stdin, **environment)
        ended = running.wait()
        assert ended == code, f"{arguments} ended with {ended}:\n{running.output}"
        return Done(ended, running.stdout, running.output)

    def json(self, *arguments: str, **options: Any) -> list[Any]:
        """The lines of JSON that a command prints."""
        return [json.loads(line) for line in self.run(*arguments, **options).stdout.splitlines()]

    @contextmanager
    def worker(self, app: str = "hello.py", *arguments: str, **environment: str) -> Iterator[Running]:
        """A worker that is ready."""
        running = self.start("worker", app, *arguments, **environment)
        running.wait_for("recovered")
        yield running
        if running.alive:
            assert running.stop() == 0, running.output

    def close(self) -> None:
        for running in self._started:
            running.kill()


# ------------------------------------------------------------------------------------------------------------ server

_context: ForkServerContext | None = None


def prepared() -> ForkServerContext:
    """Where processes are copies of one that has imported everything."""
    global _context
    if _context is None:
        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload(_LOADED)
    return _context


def _run(
    command: list[str], directory: Path, environment: dict[str, str], stdin: Path, stdout: Path, stderr: Path
) -> None:
    """In the process of the command."""
    for descriptor, (path, flags) in enumerate(
        [(stdin, os.O_RDONLY), (stdout, os.O_WRONLY | os.O_APPEND), (stderr, os.O_WRONLY | os.O_APPEND)]
    ):
        os.dup2(os.open(path, flags), descriptor)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", closefd=False) for descriptor in (1, 2))
    os.chdir(directory)
    for name in [name for name in os.environ if name.startswith("TIDEGATE_")]:
        del os.environ[name]
    os.environ.update({"TIDEGATE_COMMIT_INTERVAL": "0.05", **environment})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faults.arm(faults.parse(os.environ.get("TIDEGATE_FAULTS", "")))  # the server was there before the variable
    sys.argv = command
    if command[0] == "faust":
        from faust.cli.faust import cli

        sys.path.insert(0, str(directory))
        cli(prog_name="faust")
    from tidegate_app.cli import main

    main()

"""A worker of several processes: starts them, restarts killed ones, and stops them together.

A killed process is restarted; meanwhile its tasks move to the other processes, and nothing is lost. A process that
fails with an error would fail again, as would the processes that take over its tasks: then all stop, and the error is
shown. A process that reaches the end of a bounded run, or stops with a savepoint, is finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from typing import Any, Final

import click

from tidegate.directories import on_kafka
from tidegate.errors import SettingsError, TidegateError
from tidegate.settings import Settings
from tidegate.settings_resolution import Resolved
from tidegate_app.api_server import has_api, open_socket, public_url
from tidegate_app.options import written_flags
from tidegate_app.worker import AT_ONCE, FINISHED, set_up_logging

__all__ = ("Pool", "ProcessFailedError", "run_pool")

logger = logging.getLogger("tidegate.worker")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_FIRST_BACKOFF: Final = 0.5
_MAX_BACKOFF: Final = 30.0
"""Seconds before a process is restarted; doubled at each restart."""
_HEALTHY_SECONDS: Final = 60.0
"""A process that has run for so long resets the backoff."""


def run_pool(target: str, flags: Mapping[str, Any], resolved: Resolved, *, until_end: bool) -> None:
    """Run several processes behind one public address. This process holds its socket, so that it stays open while any
    of them runs."""
    settings = resolved.settings
    Pool(target, flags, settings, until_end=until_end)  # validates the settings before the socket is opened
    public = open_socket(resolved) if has_api(resolved, until_end=until_end) else None
    pool = Pool(target, flags, settings, until_end=until_end, public=public)
    if public is not None:
        pool.url = public_url(settings, public)
    with public or contextlib.nullcontext():
        pool.run()


class ProcessFailedError(TidegateError):
    """A child process failed; the message is its own."""


class Pool:
    def __init__(
        self,
        target: str,
        flags: Mapping[str, Any],
        settings: Settings,
        *,
        until_end: bool,
        public: socket.socket | None = None,
    ) -> None:
        """`target` and `flags`: as on the command line. `public`: the socket on which all processes serve clients."""
        self._public = public
        self.url = ""
        if not on_kafka(settings):
            raise SettingsError(
                f"{settings.processes} processes cannot share an embedded log: one process owns it. Use a broker "
                f"(--broker kafka://HOST:PORT; 'tidegate kafka start' starts one on this machine), or --processes 1."
            )
        self._target, self._flags, self._settings, self._until_end = target, flags, settings, until_end
        self._processes: dict[int, Process] = {}
        self._stop = asyncio.Event()
        self._signals: list[signal.Signals] = []
        self._failure: TidegateError | None = None
        for number in range(settings.processes):
            self._address(number)

    def run(self) -> None:
        """Run until a signal, or until all processes finish a bounded run. Raises the first failure."""
        import uvloop

        set_up_logging(self._settings.log_level)
        if self.url:
            logger.info("dashboard and API at %s", self.url)
        # uvloop: in asyncio's own loop `send_signal` may reap a process that has just ended, and lose its exit code.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        await asyncio.gather(*(self._supervise(number) for number in range(self._settings.processes)))
        if self._failure is not None:
            raise self._failure
        if len(self._signals) > 1:
            raise SystemExit(128 + self._signals[-1])
        logger.info("all %d processes have ended", self._settings.processes)

    # -- one process -------------------------------------------------------------------------------------------------
    async def _supervise(self, number: int) -> None:
        """Start the process, and restart it when it is killed."""
        backoff = _FIRST_BACKOFF
        while not self._stop.is_set():
            started = time.monotonic()
            code, message = await self._run_process(number)
            if _is_failure(code):
                self._fail(number, code, message)
            elif code == FINISHED:
                self._finish()
                return
            elif not self._stop.is_set():
                backoff = _FIRST_BACKOFF if time.monotonic() - started >= _HEALTHY_SECONDS else backoff
                logger.warning("process %d %s; restarting it in %g s", number, _ending(code), backoff)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), backoff)
                backoff = min(_MAX_BACKOFF, backoff * 2)

    async def _run_process(self, number: int) -> tuple[int, str]:
        """Returns its exit code, and its error message."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # In a session of its own: Ctrl-C in a terminal reaches the parent only, which forwards it.
            process = await asyncio.create_subprocess_exec(
                *self._command(number, theirs.fileno()),
                stdin=DEVNULL, pass_fds=self._inherited(theirs), start_new_session=True,
            )  # fmt: skip
            theirs.close()
            self._processes[number] = process
            if self._stop.is_set():
                self._signal(process, signal.SIGTERM)
            logger.debug("process %d is %d", number, process.pid)
            try:
                code = await process.wait()
            finally:
                del self._processes[number]
            return code, _read(ours)

    def _command(self, number: int, parent_link: int) -> list[str]:
        flags = {**self._flags, "processes": 1, **self._own_flags(number)}
        given = written_flags(flags)
        bounded = ["--until-end"] if self._until_end else []
        command = [sys.executable, "-P", "-m", "tidegate_app", "worker", self._target]
        shared = "" if self._public is None else f":{self._public.fileno()}"
        return [*command, *bounded, *given, f"--child={number}:{parent_link}{shared}"]

    def _inherited(self, parent_link: socket.socket) -> tuple[int, ...]:
        return tuple(one.fileno() for one in (parent_link, self._public) if one is not None)

    def _own_flags(self, number: int) -> dict[str, str]:
        """The settings that differ between the processes."""
        own = {}
        if self._settings.metrics:
            own["metrics"] = self._address(number)
        if self._settings.kafka_instance:
            own["kafka_instance"] = f"{self._settings.kafka_instance}-{number}"
        return own

    def _address(self, number: int) -> str:
        """The metrics address of a process."""
        host, _, port = self._settings.metrics.rpartition(":")
        if host and int(port) + number > 65535:
            raise SettingsError(
                f"{self._settings.processes} processes need as many metrics ports, but {self._settings.metrics} leaves "
                f"too few. Choose a lower port."
            )
        return f"{host}:{int(port) + number}" if host else ""

    # -- ends --------------------------------------------------------------------------------------------------------
    def _on_signal(self, number: signal.Signals) -> None:
        """The second signal stops all processes at once, with SIGKILL: a busy process may merge two equal signals."""
        self._signals.append(number)
        if len(self._signals) > 1:
            click.echo(AT_ONCE, err=True)
        self._stop_all(number if len(self._signals) == 1 else signal.SIGKILL)

    def _fail(self, number: int, code: int, message: str) -> None:
        if self._failure is None:
            self._failure = ProcessFailedError(message or f"process {number} exited with code {code} and no message")
        self._stop_all(signal.SIGTERM)

    def _finish(self) -> None:
        """Stop the other processes after a savepoint with --stop: one that was being restarted may have missed it. In a
        bounded run, each finishes by itself."""
        if not self._until_end:
            self._stop_all(signal.SIGTERM)

    def _stop_all(self, number: signal.Signals) -> None:
        self._stop.set()
        for process in list(self._processes.values()):
            self._signal(process, number)

    @staticmethod
    def _signal(process: Process, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _is_failure(code: int) -> bool:
    return code > 0 and code not in [FINISHED, *(128 + number for number in _SIGNALS)]


def _ending(code: int) -> str:
    if code == 0:
        return "was stopped"
    number = -code if code < 0 else code - 128
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"was ended by signal {number}"


def _read(end: socket.socket) -> str:
    """The data in the socket; its other end is closed."""
    end.setblocking(False)
    chunks = []
    with contextlib.suppress(BlockingIOError):  # a grandchild holds the other end open
        while chunk := end.recv(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks).decode(errors="replace")

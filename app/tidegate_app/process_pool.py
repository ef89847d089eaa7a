"""A worker of several processes: starts them, keeps them running, ends them together.

A process that is killed is started again: the others have its tasks meanwhile, and nothing is lost. One that fails
would fail again, as would those that get its tasks: then all stop, and its error is shown. One that has come to the
end of a bounded run, or has heard that the app has stopped with a savepoint, is done.
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
_SHORTEST: Final = 0.5
_LONGEST: Final = 30.0
"""Seconds before a process is started again: twice as many each time."""
_STEADY: Final = 60.0
"""After so many seconds a process has proved that it can run."""


def run_pool(target: str, flags: Mapping[str, Any], resolved: Resolved, *, until_end: bool) -> None:
    """Several processes behind one public address: this one holds its socket, so that it is there as long as any of
    them is."""
    settings = resolved.settings
    Pool(target, flags, settings, until_end=until_end)  # what is impossible is said first
    public = open_socket(resolved) if has_api(resolved, until_end=until_end) else None
    pool = Pool(target, flags, settings, until_end=until_end, public=public)
    if public is not None:
        pool.url = public_url(settings, public)
    with public or contextlib.nullcontext():
        pool.run()


class ProcessFailedError(TidegateError):
    """The message is the one of the process."""


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
        """`target` and `flags`: as they were given on the command line. `public`: where all of them answer clients."""
        self._public = public
        self.url = ""
        if not on_kafka(settings):
            raise SettingsError(
                f"{settings.processes} processes cannot share an embedded log: one process owns it. Give a broker "
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
        """Returns after a signal, or when all are at the end of a bounded run; raises what the first failed with."""
        import uvloop

        set_up_logging(self._settings.log_level)
        if self.url:
            logger.info("dashboard and API at %s", self.url)
        # Not on asyncio's own loop: there `send_signal` may take away the exit code of a process that has just ended.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        await asyncio.gather(*(self._keep(number) for number in range(self._settings.processes)))
        if self._failure is not None:
            raise self._failure
        if len(self._signals) > 1:
            raise SystemExit(128 + self._signals[-1])
        logger.info("all %d processes have ended", self._settings.processes)

    # -- the life of one process -------------------------------------------------------------------------------------
    async def _keep(self, number: int) -> None:
        """Start it, and again when it was ended from outside."""
        wait = _SHORTEST
        while not self._stop.is_set():
            started = time.monotonic()
            code, last_words = await self._run_process(number)
            if _is_failure(code):
                self._fail(number, code, last_words)
            elif code == FINISHED:
                self._finish()
                return
            elif not self._stop.is_set():
                wait = _SHORTEST if time.monotonic() - started >= _STEADY else wait
                logger.warning("process %d %s; starting it again in %g s", number, _ending(code), wait)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), wait)
                wait = min(_LONGEST, wait * 2)

    async def _run_process(self, number: int) -> tuple[int, str]:
        """Returns how it ended, and what it said at the end."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # In a session of its own: Ctrl-C in a terminal is for this process, which passes it on.
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

    def _command(self, number: int, leash: int) -> list[str]:
        flags = {**self._flags, "processes": 1, **self._own_flags(number)}
        given = written_flags(flags)
        bounded = ["--until-end"] if self._until_end else []
        command = [sys.executable, "-P", "-m", "tidegate_app", "worker", self._target]
        shared = "" if self._public is None else f":{self._public.fileno()}"
        return [*command, *bounded, *given, f"--child={number}:{leash}{shared}"]

    def _inherited(self, leash: socket.socket) -> tuple[int, ...]:
        return tuple(one.fileno() for one in (leash, self._public) if one is not None)

    def _own_flags(self, number: int) -> dict[str, str]:
        """What each process needs for itself."""
        own = {}
        if self._settings.metrics:
            own["metrics"] = self._address(number)
        if self._settings.kafka_instance:
            own["kafka_instance"] = f"{self._settings.kafka_instance}-{number}"
        return own

    def _address(self, number: int) -> str:
        """Where a process serves its metrics."""
        host, _, port = self._settings.metrics.rpartition(":")
        if host and int(port) + number > 65535:
            raise SettingsError(
                f"{self._settings.processes} processes need as many ports, and {self._settings.metrics} leaves too few"
            )
        return f"{host}:{int(port) + number}" if host else ""

    # -- ends --------------------------------------------------------------------------------------------------------
    def _on_signal(self, number: signal.Signals) -> None:
        """The second one is for all to stop at once. They are killed: a busy process takes two signals for one."""
        self._signals.append(number)
        if len(self._signals) > 1:
            click.echo(AT_ONCE, err=True)
        self._stop_all(number if len(self._signals) == 1 else signal.SIGKILL)

    def _fail(self, number: int, code: int, last_words: str) -> None:
        if self._failure is None:
            words = last_words or f"process {number} has ended with exit code {code}, and has not said why"
            self._failure = ProcessFailedError(words)
        self._stop_all(signal.SIGTERM)

    def _finish(self) -> None:
        """The others come to the end of a bounded run by themselves. Of a savepoint that stops the app, one that was
        just being started again may not have heard: it would go on."""
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
    """What is left in it; the other end is closed."""
    end.setblocking(False)
    chunks = []
    with contextlib.suppress(BlockingIOError):  # a process that it has started holds it open
        while chunk := end.recv(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks).decode(errors="replace")

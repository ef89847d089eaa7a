"""Workers as real processes, which a test starts, stops, kills and waits for."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ("WorkerProcess", "Zygote")

ROOT = Path(__file__).parents[3]


class Zygote:
    """Starts workers as copies of a process that has imported everything. See `zygote`."""

    def __init__(self) -> None:
        self.started = self.killed = 0

    @cached_property
    def _process(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.support.zygote"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt of the test run reaches the test run, which then cleans up
        )

    def start(self, arguments: Mapping[str, Any], environment: Mapping[str, str], output: Path) -> WorkerProcess:
        self.started += 1
        request = {"arguments": arguments, "environment": environment, "output": str(output)}
        return WorkerProcess(self, self._ask(do="start", **request)["pid"], output)

    def poll(self, pid: int) -> int | None:
        """How a child ended: its exit status, or the signal as a negative number; None: it has not."""
        status: int | None = self._ask(do="poll", pid=pid)["status"]
        self.killed += status == -signal.SIGKILL
        return status

    def close(self) -> None:
        """Every child that is left goes with it."""
        if self.started:
            self._process.communicate(timeout=30)

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that starts workers has ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class WorkerProcess:
    """One run of a worker, from its start to its end."""

    def __init__(self, zygote: Zygote, pid: int, output: Path) -> None:
        self._zygote, self.pid, self._output = zygote, pid, output
        self.status: int | None = None

    @property
    def output(self) -> str:
        """All that it has written so far."""
        return self._output.read_text() if self._output.exists() else ""

    @property
    def over(self) -> bool:
        if self.status is None:
            self.status = self._zygote.poll(self.pid)
        return self.status is not None

    def wait(self, seconds: float = 60) -> int:
        """Until it ends. It is killed, and the test fails, if it does not."""
        deadline = time.monotonic() + seconds
        while not self.over:
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the worker did not end within {seconds:g} s; it wrote:\n{self.output[-4000:]}")
            self._rest(deadline - time.monotonic())
        assert self.status is not None
        return self.status

    def _rest(self, seconds: float) -> None:
        """Until it ends, but not longer; its id is its own until it is asked how it ended."""
        if sys.platform != "linux":
            time.sleep(0.003)
            return
        process = os.pidfd_open(self.pid)
        try:
            select.select([process], [], [], max(seconds, 0.0))
        finally:
            os.close(process)

    def wait_for(self, text: str, seconds: float = 30) -> None:
        """Until it has written this."""
        self.wait_until(lambda: text in self.output, seconds, f"did not write {text!r}")

    def wait_until(self, condition: Callable[..., Any], seconds: float = 30, what: str = "did not come so far") -> None:
        deadline = time.monotonic() + seconds
        while not (looked := _timed(condition))[0]:
            if self.over or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the worker {what} (status {self.status}); it wrote:\n{self.output[-4000:]}")
            time.sleep(max(0.005, 3 * looked[1]))  # looking may be work itself, and the worker needs the processor

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if not self.over:
            os.kill(self.pid, signal.SIGKILL)
            while not self.over:
                time.sleep(0.001)

    def signal(self, number: signal.Signals) -> None:
        if not self.over:
            os.kill(self.pid, number)

    @property
    def stopped(self) -> bool:
        """By SIGSTOP."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    @property
    def rss(self) -> int:
        """Bytes of memory that it holds."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _timed(condition: Callable[..., Any]) -> tuple[Any, float]:
    """What it says, and how long that took."""
    began = time.monotonic()
    return condition(), time.monotonic() - began

"""A peer as a process group: started, sampled for CPU and memory, and ended with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

__all__ = ("Process", "Usage", "running", "usage_of")

_PATIENCE = 8.0


@dataclass(frozen=True)
class Usage:
    """CPU seconds since the start, and resident bytes, of a process and its children."""

    cpu: float
    rss: int


def usage_of(pid: int) -> Usage:
    """Ended children are included by their parent's accounting."""
    cpu, rss = 0.0, 0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                cpu += times.user + times.system + times.children_user + times.children_system
                rss += process.memory_info().rss
    return Usage(cpu, rss)


def _busy() -> float:
    """The machine's busy CPU seconds since its start."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + getattr(times, "irq", 0) + getattr(times, "softirq", 0))


@dataclass
class Process:
    """A running peer and its samples."""

    popen: subprocess.Popen[bytes]
    log: Path
    broker: int | None
    """The broker's process, if it runs on this machine."""
    moments: list[float] = field(default_factory=list)
    own: list[Usage] = field(default_factory=list)
    brokers: list[Usage] = field(default_factory=list)
    everything: list[float] = field(default_factory=list)
    """CPU seconds of all other processes on the machine."""

    @property
    def ended(self) -> bool:
        return self.popen.poll() is not None

    def sample(self) -> None:
        self.moments.append(time.time())
        self.own.append(usage_of(self.popen.pid))
        self.brokers.append(usage_of(self.broker) if self.broker else Usage(0, 0))
        self.everything.append(_busy() - self.own[-1].cpu - self.brokers[-1].cpu - time.process_time())

    def cpu_between(self, start: float, end: float) -> tuple[float, float, float]:
        """CPU usage of the peer, the broker and other processes between two moments, in CPU seconds per second."""
        if len(self.moments) < 2:
            return 0.0, 0.0, 0.0
        first = min(bisect_left(self.moments, start), len(self.moments) - 2)
        last = max(min(bisect_left(self.moments, end), len(self.moments) - 1), first + 1)
        span = self.moments[last] - self.moments[first]
        own = (self.own[last].cpu - self.own[first].cpu) / span
        broker = (self.brokers[last].cpu - self.brokers[first].cpu) / span
        others = (self.everything[last] - self.everything[first]) / span
        # an external broker cannot be distinguished from other processes
        return own, broker, max(others, 0.0) if self.broker else 0.0

    @property
    def peak_rss(self) -> int:
        return max((usage.rss for usage in self.own), default=0)

    def complaint(self) -> str:
        """The last lines of its output; those about errors, if there are any."""
        lines = [line.strip()[:300] for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"error|exception", line, re.IGNORECASE)]
        return "\n".join((errors or lines)[-8:])

    async def stop(self) -> None:
        """Terminate it, then kill the rest of its group."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.popen.wait, _PATIENCE)
        self.kill()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.popen.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)


@asynccontextmanager
async def running(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path, broker: int | None
) -> AsyncIterator[Process]:
    """The process has ended when the context exits."""
    process = Process(_launch(command, environment, log), log, broker)
    try:
        yield process
    finally:
        process.kill()


def _launch(command: Sequence[str | Path], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

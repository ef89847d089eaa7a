"""The threads in which a worker runs plain handlers that block: one pool per service, shared by its tasks.

The threads are daemons: one that hangs must not keep the process from ending, as those of `concurrent.futures` would.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

__all__ = ("HandlerThreads", "ThreadPools")

Job = Callable[[], None]


class HandlerThreads:
    """At most `size` threads, started when they are needed. Jobs run in the order in which they are submitted, and
    raise nothing."""

    def __init__(self, name: str, size: int) -> None:
        self.size, self._name = size, name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def submit(self, job: Job) -> None:
        """Called by the event loop only."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self.size:
            name = f"{self._name}-{len(self._threads) + 1}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function in one of the threads and wait for its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def finish(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def job() -> None:
            try:
                result, failure = function(), None
            except Exception as error:
                result, failure = None, error
            loop.call_soon_threadsafe(finish, result, failure)

        self.submit(job)
        return await future

    def close(self) -> None:
        """Let the threads end when what is submitted is done."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job
            self._idle.release()


class ThreadPools:
    """The pools of a worker's services. A pool exists as long as one of the service's tasks does."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[HandlerThreads, int]] = {}

    def acquire(self, service: str, size: int) -> HandlerThreads:
        pool, tasks = self._pools.get(service) or (HandlerThreads(service, size), 0)
        self._pools[service] = pool, tasks + 1
        return pool

    def release(self, service: str) -> None:
        pool, tasks = self._pools.pop(service)
        if tasks > 1:
            self._pools[service] = pool, tasks - 1
        else:
            pool.close()

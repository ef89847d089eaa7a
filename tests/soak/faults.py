"""What befalls the workers and the broker, one thing after the other, chosen by a seed."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from tests.faults.support.kills import VISITS
from tests.faults.support.points import ON_KAFKA
from tests.soak.workers import SESSION, Worker
from tidegate_app.kafka import Broker

__all__ = ("Faults",)

INTERRUPTED: Final = 130
"""It had not begun to work. One that had not even begun to listen ends by the signal itself."""


LEAST: Final = 2
MOST: Final = 5
"""Workers, when there come to be fewer or more."""
POINTS: Final = sorted({*ON_KAFKA} - {"task.reopening", "task.closing"})
"""Those to which a worker comes by itself, sooner or later."""
SOON: Final = 10.0
"""Seconds in which a worker comes to a point where it is to be killed, or it never does."""


class Faults:
    """Each leaves at least one worker at work, and ends with everything running again."""

    def __init__(self, workers: list[Worker], broker: Broker, random: Random, new_worker: Callable[[], Worker]) -> None:
        self._workers, self._broker, self._random, self._new_worker = workers, broker, random, new_worker
        self.fired: Counter[str] = Counter()
        self._kinds: list[tuple[str, int, Callable[[], Awaitable[bool | None]]]] = [
            ("kill -9 of a worker", 10, self._kill),
            ("kill -9 of two workers", 3, self._kill_two),
            ("kill -9 at a named point", 6, self._kill_at_point),
            ("SIGSTOP past the session", 5, self._sleep),
            ("SIGSTOP for a moment", 4, self._doze),
            ("a worker stopped and started", 4, self._restart),
            ("a worker more", 2, self._grow),
            ("a worker less", 2, self._shrink),
            ("kill -9 of the broker", 2, self._kill_broker),
            ("the broker stopped and started", 1, self._restart_broker),
        ]

    async def one(self) -> str:
        """Counted if it did happen."""
        names, weights, actions = zip(*self._kinds, strict=True)
        (chosen,) = self._random.choices(range(len(names)), weights)
        happened = await actions[chosen]()
        if happened is False:
            return f"no {names[chosen]}"
        self.fired[names[chosen]] += 1
        return str(names[chosen])

    def _any(self, count: int = 1) -> list[Worker]:
        return self._random.sample(self._workers, count)

    async def _pause(self, most: float) -> None:
        await asyncio.sleep(self._random.random() * most)

    async def _kill(self) -> None:
        (worker,) = self._any()
        worker.kill()
        await self._pause(2 * SESSION)
        worker.start()

    async def _kill_two(self) -> None:
        workers = self._any(2)
        for worker in workers:
            worker.kill()
            await self._pause(1)
        for worker in workers:
            worker.start()

    async def _kill_at_point(self) -> bool:
        """Not at any moment, but in the middle of something that takes none."""
        (worker,) = self._any()
        worker.kill()
        before = worker.struck.stat().st_size if worker.struck.exists() else 0
        point = self._random.choice(POINTS)
        worker.start(f"{point}:kill@{self._random.randint(1, VISITS.get(point, 12))}")
        await asyncio.to_thread(worker.wait, SOON)
        worker.kill()
        worker.start()
        return worker.struck.exists() and worker.struck.stat().st_size > before

    async def _sleep(self) -> None:
        (worker,) = self._any()
        worker.sleep()
        await asyncio.sleep(2 * SESSION)
        await self._pause(SESSION)
        worker.wake()

    async def _doze(self) -> None:
        (worker,) = self._any()
        worker.sleep()
        await self._pause(SESSION)
        worker.wake()

    async def _restart(self) -> None:
        (worker,) = self._any()
        await self._stop(worker)
        await self._pause(SESSION)
        worker.start()

    async def _grow(self) -> bool:
        if len(self._workers) >= MOST:
            return False
        self._workers.append(self._new_worker())
        self._workers[-1].start()
        return True

    async def _shrink(self) -> bool:
        if len(self._workers) <= LEAST:
            return False
        (worker,) = self._any()
        self._workers.remove(worker)
        await self._stop(worker)
        return True

    async def _stop(self, worker: Worker) -> None:
        status = await asyncio.to_thread(worker.stop)
        if status not in (0, INTERRUPTED, -signal.SIGTERM):
            raise AssertionError(worker.died() or f"{worker.name} ended with {status}")

    async def _kill_broker(self) -> None:
        await asyncio.to_thread(self._broker.kill)
        await self._pause(5)
        await asyncio.to_thread(self._broker.start)

    async def _restart_broker(self) -> None:
        await asyncio.to_thread(self._broker.stop)
        await self._pause(5)
        await asyncio.to_thread(self._broker.start)

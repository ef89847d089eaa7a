"""Looks after a worker's tasks from outside of them: how far behind they are, whether one stands still for no reason,
and whether the topics still are what the plan was made for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from tidegate.engine.task import Task
from tidegate.engine.topology.plan import Plan
from tidegate.engine.worker.feed import Feed
from tidegate.engine.worker.stall_detector import Stall, StallDetector
from tidegate.errors import LogUnavailableError, PartitionCountError
from tidegate.logs.base import Log, TopicPartition
from tidegate.settings import Settings
from tidegate.time.clock import Clock

__all__ = ("Monitor",)

logger = logging.getLogger(__name__)

_MEASURE_SECONDS = 2.0
"""How often the lag is looked at."""
_COUNT_SECONDS = 30.0
"""How often the partitions of all topics are counted."""
_PUBLISH_SECONDS = 5.0
"""How often those who watch from outside are told the positions."""


class Monitor:
    def __init__(
        self,
        plan: Plan,
        log: Log,
        settings: Settings,
        clock: Clock,
        tasks: Mapping[str, Task],
        feeds: Mapping[str, Feed],
        wake: Callable[[], None],
    ) -> None:
        """`tasks`: those that run; `feeds`: by service. Both change."""
        self._plan, self._log, self._settings, self._clock = plan, log, settings, clock
        self._tasks, self._feeds, self._wake = tasks, feeds, wake
        self._stalls = StallDetector(settings.stall_seconds)
        self._counted = clock.monotonic()
        self.ends: Mapping[TopicPartition, int] = {}
        """A bounded run reads no further than here."""

    def forget(self, task: Task) -> None:
        self._stalls.forget(task)

    async def measure_forever(self) -> None:
        while True:
            await asyncio.sleep(min(_MEASURE_SECONDS, self._settings.stall_seconds / 4))
            with suppress(LogUnavailableError):  # the next time, then
                await self.measure()
                if self._clock.monotonic() - self._counted >= _COUNT_SECONDS:
                    await self.check_partitions()

    async def publish_forever(self) -> None:
        """For those who watch the lag from outside. Nothing of ours reads it."""
        while True:
            await asyncio.sleep(_PUBLISH_SECONDS)
            await self.publish(list(self._tasks.values()))

    async def measure(self) -> None:
        """How far behind the tasks are, and whether one stands still for no reason."""
        ends = await self._log.end_offsets({source for task in self._tasks.values() for source in task.inputs})
        bounded = {source: min(end, self.ends.get(source, end)) for source, end in ends.items()}
        monotonic = self._clock.monotonic()
        for task in list(self._tasks.values()):
            behind = (ends.get(source, 0) - input_.handled for source, input_ in task.inputs.items())
            task.metrics.lag.set(sum(max(0, lag) for lag in behind))
            for stall in () if task.held else self._stalls.look(task, bounded, monotonic):
                await self._heal(stall)
            task.metrics.stalled.set(self._stalls.stalled(task))

    async def check_partitions(self) -> None:
        """Nobody reads a partition that was added since the start, and keys lie elsewhere from then on."""
        self._counted = self._clock.monotonic()
        existing = await self._log.topics()
        for spec in self._plan.specs:
            known = existing.get(spec.name)
            if known is not None and known.partitions != spec.partitions:
                raise PartitionCountError(spec.name, known.partitions, spec.partitions)

    async def publish(self, tasks: Iterable[Task]) -> None:
        positions: dict[str, dict[TopicPartition, int]] = {}
        for task in tasks:
            handled = {source: input_.handled for source, input_ in task.inputs.items()}
            positions.setdefault(task.definition.name, {}).update(handled)
        for service, reached in positions.items():
            await self._log.publish_positions(f"{self._plan.app}.{service}", reached)

    async def _heal(self, stall: Stall) -> None:
        task = stall.task
        logger.error(
            "%s: nothing comes from %s since %.0f s, though it is at %d and the log ends at %d. %s",
            task.plan.id, stall.source, stall.seconds, stall.position, stall.end,
            "Opening the task again" if stall.times else "Reading it anew",
        )  # fmt: skip
        if stall.times:
            task.handling.fail(LogUnavailableError(f"{stall.source} stands still"))
            self._wake()
        await self._feeds[task.definition.name].renew(self._log.reader())

"""Monitors the tasks of a worker: lag, stalled inputs, partition counts of topics, published positions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from tidegate.engine.task import Task
from tidegate.engine.topology.plan import Plan
from tidegate.engine.worker.service_reader import ServiceReader
from tidegate.engine.worker.stall_detector import Stall, StallDetector
from tidegate.errors import LogUnavailableError, PartitionCountError
from tidegate.logs.base import Log, TopicPartition
from tidegate.settings import Settings
from tidegate.time.clock import Clock

__all__ = ("Monitor",)

logger = logging.getLogger(__name__)

_MEASURE_SECONDS = 2.0
"""Interval of measuring the lag."""
_PARTITION_CHECK_SECONDS = 30.0
"""Interval of checking the partition counts of all topics."""
_PUBLISH_SECONDS = 5.0
"""Interval of publishing positions for external tools."""


class Monitor:
    def __init__(
        self,
        plan: Plan,
        log: Log,
        settings: Settings,
        clock: Clock,
        tasks: Mapping[str, Task],
        readers: Mapping[str, ServiceReader],
        wake: Callable[[], None],
    ) -> None:
        """`tasks`: the running tasks; `readers`: by service. Both mappings change."""
        self._plan, self._log, self._settings, self._clock = plan, log, settings, clock
        self._tasks, self._readers, self._wake = tasks, readers, wake
        self._stalls = StallDetector(settings.stall_seconds)
        self._partitions_checked_at = clock.monotonic()
        self.ends: Mapping[TopicPartition, int] = {}
        """The end offsets of a bounded run."""

    def remove(self, task: Task) -> None:
        self._stalls.remove(task)

    async def measure_forever(self) -> None:
        while True:
            await asyncio.sleep(min(_MEASURE_SECONDS, self._settings.stall_seconds / 4))
            with suppress(LogUnavailableError):  # measured at the next interval
                await self.measure()
                if self._clock.monotonic() - self._partitions_checked_at >= _PARTITION_CHECK_SECONDS:
                    await self.check_partitions()

    async def publish_forever(self) -> None:
        """Publishes positions for external tools that watch lag. Tidegate does not read them."""
        while True:
            await asyncio.sleep(_PUBLISH_SECONDS)
            await self.publish(list(self._tasks.values()))

    async def measure(self) -> None:
        """Measure the lag of all tasks, and recover stalled inputs."""
        ends = await self._log.end_offsets({source for task in self._tasks.values() for source in task.inputs})
        bounded = {source: min(end, self.ends.get(source, end)) for source, end in ends.items()}
        monotonic = self._clock.monotonic()
        for task in list(self._tasks.values()):
            behind = (ends.get(source, 0) - input_.handled for source, input_ in task.inputs.items())
            task.metrics.lag.set(sum(max(0, lag) for lag in behind))
            for stall in () if task.held else self._stalls.check(task, bounded, monotonic):
                await self._recover(stall)
            task.metrics.stalled.set(self._stalls.stalled(task))

    async def check_partitions(self) -> None:
        """PartitionCountError: a topic was repartitioned. No task reads the added partitions, and keys move."""
        self._partitions_checked_at = self._clock.monotonic()
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

    async def _recover(self, stall: Stall) -> None:
        task = stall.task
        logger.error(
            "%s: no records from %s for %.0f s, though it is at %d and the log ends at %d. %s",
            task.plan.id, stall.source, stall.seconds, stall.position, stall.end,
            "Reopening the task" if stall.attempts else "Replacing the reader",
        )  # fmt: skip
        if stall.attempts:
            task.invoker.fail(LogUnavailableError(f"{stall.source} is stalled"))
            self._wake()
        await self._readers[task.definition.name].replace_reader(self._log.reader())

"""The operations of the owner RPC, and their execution by the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from tidegate.engine.task import Task
from tidegate.engine.topology.plan import Plan
from tidegate.errors import UnknownNameError, UnknownTopicError, UsageError
from tidegate.logs.base import Log, NewRecord, TopicPartition, TopicSpec
from tidegate.owner_rpc.protocol import (
    Append,
    Appended,
    AppendedRecord,
    CheckpointTaken,
    Done,
    Entries,
    Items,
    OperatorItems,
    Reset,
    ResetDone,
    Services,
    ServicesFound,
    ServiceStatus,
    StatePage,
    TakeCheckpoint,
    TaskStatus,
    Timers,
    Topics,
    TopicsFound,
    TopicStatus,
)
from tidegate.owner_rpc.rwlock import RWLock
from tidegate.query.views import ServiceView

__all__ = ("Offsets", "Operations", "Owner", "OwnerContext", "describe_topics", "group_by_partition")


class OwnerContext(Protocol):
    """The parts of the owning process that operations use."""

    @property
    def plan(self) -> Plan: ...
    @property
    def log(self) -> Log: ...
    @property
    def lock(self) -> RWLock: ...
    @property
    def tasks(self) -> Mapping[str, Task]:
        """The running tasks, by name."""

    async def view(self, service: str, key: bytes | None = None) -> ServiceView:
        """The committed state of a service, once it is recovered; with a key, at least that of the key's task."""

    async def reset(self, *, outputs: bool, everything: bool) -> list[str]:
        """Reset the app. Returns the emptied topics."""

    async def checkpoint(self, name: str | None = None, *, stop: bool = False, timeout: float | None = None) -> int:
        """Take a checkpoint or, with a name, a savepoint; with `stop`, stop the app afterwards. Returns its epoch."""


class Operations(Protocol):
    """Operations on an app's log: direct in the owning process, through a Connection in others."""

    async def topics(self) -> list[TopicStatus]: ...

    async def append(self, topic: str, records: list[AppendedRecord]) -> Mapping[int, int]:
        """Append in one transaction. Returns by partition the position after the last record, when all are durable."""

    async def services(self) -> list[ServiceStatus]:
        """The progress of the running tasks."""

    async def entries(self, request: Entries) -> StatePage: ...

    async def timers(self, request: Timers) -> StatePage: ...

    async def items(self, request: Items) -> OperatorItems: ...

    async def reset(self, request: Reset) -> ResetDone: ...

    async def checkpoint(self, request: TakeCheckpoint) -> CheckpointTaken: ...


class Owner:
    """Executes operations in the process that owns the log."""

    def __init__(self, context: OwnerContext) -> None:
        self._context = context

    async def answer(
        self, request: Append | Topics | Services | Entries | Timers | Items | Reset | TakeCheckpoint
    ) -> Done:
        match request:
            case Append():
                return Appended(dict(await self.append(request.topic, request.records)))
            case Topics():
                return TopicsFound(await self.topics())
            case Services():
                return ServicesFound(await self.services())
            case Entries():
                return await self.entries(request)
            case Timers():
                return await self.timers(request)
            case Items():
                return await self.items(request)
            case Reset():
                return await self.reset(request)
            case TakeCheckpoint():
                return await self.checkpoint(request)

    async def topics(self) -> list[TopicStatus]:
        async with self._context.lock.shared():
            return await describe_topics(self._context.log, (await self._context.log.topics()).values())

    async def append(self, topic: str, records: list[AppendedRecord]) -> Mapping[int, int]:
        log = self._context.log
        async with self._context.lock.shared():
            spec = (await log.topics()).get(topic)
            if spec is None:
                raise UnknownTopicError(topic, await log.topics())
            writer = await log.writer()
            try:
                ends = await writer.append(group_by_partition(spec, records))
            finally:
                await writer.close()
        return {source.partition: end for source, end in ends.items()}

    async def services(self) -> list[ServiceStatus]:
        async with self._context.lock.shared():
            tasks = list(self._context.tasks.values())  # the mapping changes during the awaits
            ends = await self._context.log.end_offsets({source for task in tasks for source in task.inputs})
            found: dict[str, list[TaskStatus]] = {name: [] for name in self._context.plan.services}
            for task in tasks:
                found[task.definition.name].append(_status(task, ends))
                await asyncio.sleep(0)
        return [ServiceStatus(name, tasks) for name, tasks in found.items()]

    async def entries(self, request: Entries) -> StatePage:
        async with self._context.lock.shared():
            view = await self._view(request.service, request.key)
            page = await view.entries(
                request.state, key=request.key, prefix=request.prefix, after=request.after, limit=request.limit
            )
        return StatePage(page)

    async def timers(self, request: Timers) -> StatePage:
        async with self._context.lock.shared():
            view = await self._view(request.service, request.key)
            return StatePage(await view.timers(request.key, after=request.after, limit=request.limit))

    async def items(self, request: Items) -> OperatorItems:
        async with self._context.lock.shared():
            return OperatorItems((await self._view(request.service)).items(request.state))

    async def reset(self, request: Reset) -> ResetDone:
        return ResetDone(await self._context.reset(outputs=request.outputs, everything=request.everything))

    async def checkpoint(self, request: TakeCheckpoint) -> CheckpointTaken:
        epoch = await self._context.checkpoint(request.name, stop=request.stop, timeout=request.timeout)
        return CheckpointTaken(epoch)

    async def _view(self, service: str, key: bytes | None = None) -> ServiceView:
        if service not in self._context.plan.services:
            raise UnknownNameError("service", service, self._context.plan.services)
        return await self._context.view(service, key)


async def describe_topics(log: Offsets, specs: Iterable[TopicSpec]) -> list[TopicStatus]:
    """The status of these topics, sorted by name."""
    sources = {spec: [TopicPartition(spec.name, number) for number in range(spec.partitions)] for spec in specs}
    every = [source for partitions in sources.values() for source in partitions]
    starts, ends = await log.start_offsets(every), await log.end_offsets(every)
    return [
        TopicStatus(
            spec.name,
            spec.partitions,
            spec.compact,
            spec.retention_ms,
            spec.retention_bytes,
            [starts[source] for source in partitions],
            [ends[source] for source in partitions],
        )
        for spec, partitions in sorted(sources.items(), key=lambda item: item[0].name)
    ]


class Offsets(Protocol):
    """A log or an observer."""

    async def start_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    async def end_offsets(self, sources: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]: ...


def group_by_partition(spec: TopicSpec, records: list[AppendedRecord]) -> dict[TopicPartition, list[NewRecord]]:
    grouped: dict[TopicPartition, list[NewRecord]] = {}
    for partition, key, value, timestamp, headers in records:
        if not 0 <= partition < spec.partitions:
            raise UsageError(f"topic {spec.name!r} has {spec.partitions} partitions; there is no partition {partition}")
        grouped.setdefault(TopicPartition(spec.name, partition), []).append((key, value, timestamp, headers))
    return grouped


def _status(task: Task, ends: Mapping[TopicPartition, int]) -> TaskStatus:
    lag = sum(max(0, ends[source] - input_.handled) for source, input_ in task.inputs.items())
    return TaskStatus(task.plan.number, task.state.value, lag, task.time.watermark, task.invoker.unfinished)

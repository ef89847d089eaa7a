"""Local tasks: lookup by key, and waiting until a task has committed a position.

A task answers queries while it runs and the group has confirmed the assignment recently. A task that is assigned
to this worker but does not run is being restored: NotReadyError, retry. Any other task runs elsewhere: ElsewhereError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tidegate.engine.formats.commit_marker import CommitMarker, source_name
from tidegate.engine.task import Task, TaskState
from tidegate.engine.topology.shuffle import changelog_topic
from tidegate.engine.worker.engine import Engine
from tidegate.errors import (
    ElsewhereError,
    NotReadyError,
    PositionError,
    PositionNotReachedError,
    StoreError,
    UnknownNameError,
)
from tidegate.functions.definition import ServiceDefinition
from tidegate.host.host import Host
from tidegate.logs.base import TopicPartition
from tidegate.query.views import ServiceView, TaskView
from tidegate.serving.position_tokens import Position

__all__ = ("LocalTasks", "ReadCommit", "readable", "view_of")


class ReadCommit:
    """The commit at which a response was read."""

    __slots__ = ("lineage", "marker", "offset", "task")

    def __init__(self, task: Task, view: TaskView) -> None:
        marker, at = view.marker, view.store.position
        self.task, self.marker = task.plan.id, marker
        self.lineage, self.offset = ("", 0) if at is None else (at.lineage, at.offset)

    @property
    def position(self) -> Position:
        return Position("" if self.marker is None else self.marker.run, {self.task: (self.lineage[:8], self.offset)})


class LocalTasks:
    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def engine(self) -> Engine:
        engine: Engine | None = getattr(self._host, "engine", None)
        if engine is None:
            raise NotReadyError("this worker", "it is starting")
        return engine

    def definition(self, service: str) -> ServiceDefinition:
        """The service as planned. Internal services that only shuffle are hidden."""
        services = self.engine.plan.services
        found = services.get(service)
        if found is None or found.part_of is not None:
            raise UnknownNameError("service", service, (name for name, s in services.items() if s.part_of is None))
        return found

    # -- lookup ------------------------------------------------------------------------------------------------------
    def task(self, definition: ServiceDefinition, number: int) -> Task:
        """The running task. ElsewhereError: another worker owns it. NotReadyError: retry."""
        engine = self.engine
        task = engine.tasks.get(f"{definition.name}.{number}")
        if task is not None and task.state is TaskState.RUNNING:
            if not engine.membership.session_valid:
                raise NotReadyError(task.plan.id, "this worker's group membership is not confirmed")
            return task
        if self.changelog(definition, number) in engine.membership.owned:
            raise NotReadyError(f"{definition.name}.{number}", "its state is being restored")
        if not self._host.running:
            raise NotReadyError(f"{definition.name}.{number}", "the worker is starting")
        raise ElsewhereError(definition.name, number)

    def changelog(self, definition: ServiceDefinition, number: int) -> TopicPartition:
        plan = self.engine.plan
        return TopicPartition(changelog_topic(plan.app, plan.run, definition.name), number)

    def here(self, definition: ServiceDefinition) -> list[int]:
        """The numbers of the service's tasks that are assigned to this worker, running or not."""
        owned = self.engine.membership.owned
        return [n for n in range(definition.tasks) if self.changelog(definition, n) in owned]

    def view(self, definition: ServiceDefinition, tasks: Iterable[Task]) -> ServiceView:
        return ServiceView(definition, [view_of(task) for task in tasks], self._host.clock)

    # -- waiting -----------------------------------------------------------------------------------------------------
    async def wait(self, definition: ServiceDefinition, number: int, wanted: Position, seconds: float) -> None:
        """Wait until the task has committed all of `wanted` that concerns it."""
        check_concerned(definition, wanted)
        task = self.task(definition, number)
        if has_reached(task, wanted):
            return
        moved = asyncio.Event()
        stop = self.engine.commit_listeners.listen(lambda name, _: moved.set() if name == task.plan.id else None)
        try:
            async with asyncio.timeout(seconds):
                while not has_reached(self.task(definition, number), wanted):
                    moved.clear()
                    await moved.wait()
        except TimeoutError:
            raise PositionNotReachedError(f"{definition.name}.{number}", seconds) from None
        finally:
            stop()


def view_of(task: Task) -> TaskView:
    return TaskView(number=task.plan.number, store=task.store, watermark=task.time.watermark)


def check_concerned(definition: ServiceDefinition, wanted: Position) -> None:
    """Reject a token that names neither an input nor a commit of this service: there is nothing to wait for."""
    read = {topic.name for topic in definition.topics}
    stem = f"{definition.name}."
    if read & wanted.topics.keys() or any(task.startswith(stem) for task in wanted.tasks):
        return
    raise PositionError(
        f"min_position names {', '.join([*wanted.topics, *wanted.tasks]) or 'nothing'}, but service "
        f"{definition.name!r} reads {', '.join(sorted(read))}: use it with a service that reads the written topic "
        f"directly"
    )


def has_reached(task: Task, wanted: Position) -> bool:
    with readable(task.plan.id):
        reached = ReadCommit(task, view_of(task))
    marker = reached.marker
    if marker is not None and marker.run != wanted.run:
        raise PositionError(f"min_position belongs to run {wanted.run!r} of the app; the current run is {marker.run!r}")
    commit = wanted.tasks.get(task.plan.id)
    if commit is not None:
        if commit[0] != reached.lineage[:8]:
            raise PositionError("min_position was issued before the app was reset")
        if reached.offset < commit[1]:
            return False
    return all(
        marker is not None and _holds(marker, source, at)
        for source in task.inputs
        if (at := wanted.topics.get(source.topic, {}).get(source.partition)) is not None
    )


def _holds(marker: CommitMarker, source: TopicPartition, position: int) -> bool:
    """Whether all records below the position are handled and committed."""
    mark = marker.inputs.get(source_name(source))
    return mark is not None and mark.position >= position and all(open_ >= position for open_ in mark.unfinished)


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Translates the StoreError of a closed store: its task has just been revoked."""
    try:
        yield
    except StoreError as error:
        raise NotReadyError(what, f"its store is being closed ({error})") from error

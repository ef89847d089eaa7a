"""The contract with the group that assigns an app's tasks to its workers.

A task is identified by its changelog's partition, whatever topics it reads. So all inputs of a task have one owner by
construction, and one group serves all services of an app.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from tidegate.logs.base import TopicPartition
from tidegate.logs.observer import Worker

__all__ = ("LocalTasks", "Membership", "SingleWorker", "process_name")

LocalTasks = Callable[[], Iterable[TopicPartition]]
"""Returns the tasks whose local state is on this machine: they are cheap to open here."""


def process_name() -> str:
    """This process, for messages."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class Membership(Protocol):
    """A worker's place among the workers of an app."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The tasks of the last assignment. If a task was reassigned since, its new owner fences this one."""

    @property
    def generation(self) -> int:
        """Increases with every assignment."""

    @property
    def name(self) -> str:
        """This process, for messages."""

    @property
    def session_valid(self) -> bool:
        """The group has confirmed this member within the session timeout, so no other worker can own its tasks."""

    async def workers(self) -> list[Worker]:
        """All members with their tasks and addresses; during a rebalance they have no tasks."""

    async def join(self, tasks: Iterable[TopicPartition], local: LocalTasks) -> None:
        """Join the group, which assigns these tasks. Returns with the first assignment."""

    async def changed(self, generation: int) -> None:
        """Wait for an assignment after this generation. Raises errors that make membership impossible."""

    async def confirm(self) -> bool:
        """Ask the group whether the assignment is still valid. False: it is not, or the group does not answer."""

    async def leave(self) -> None:
        """Leave the group, after the tasks were closed."""


class SingleWorker:
    """The only worker, which owns all tasks: one process owns an embedded log."""

    session_valid = True

    def __init__(self, address: str = "") -> None:
        """`address`: the URL of this worker's API."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self.generation = 0
        self.name, self.address = process_name(), address

    async def workers(self) -> list[Worker]:
        return [Worker(name=self.name, tasks=self.owned, address=self.address)]

    async def join(self, tasks: Iterable[TopicPartition], local: LocalTasks) -> None:
        self.owned = frozenset(tasks)
        self.generation += 1

    async def changed(self, generation: int) -> None:
        if self.generation <= generation:
            await asyncio.Event().wait()

    async def confirm(self) -> bool:
        return True

    async def leave(self) -> None:
        self.owned = frozenset()

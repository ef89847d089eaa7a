"""Which of an app's tasks this worker owns.

A task is named by its changelog's partition: there is one for each, whatever topics the task reads. So all inputs of a
task have one owner by construction, and one group serves all services of an app.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from tidegate.logs.base import TopicPartition
from tidegate.logs.observer import Worker

__all__ = ("Alone", "Held", "Membership", "process_name")

Held = Callable[[], Iterable[TopicPartition]]
"""The tasks whose local state is on this machine: they are cheap to open here."""


def process_name() -> str:
    """This process, for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class Membership(Protocol):
    """A worker's place among the workers of an app."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """As of the last assignment; a task that was taken away since then is fenced by its new owner."""

    @property
    def generation(self) -> int:
        """Grows with every assignment."""

    @property
    def name(self) -> str:
        """For people: which process this is."""

    @property
    def fresh(self) -> bool:
        """The group has confirmed this member so lately that nobody else can have its tasks."""

    async def workers(self) -> list[Worker]:
        """All members, with their tasks and addresses; while tasks are divided anew, nobody has any."""

    async def join(self, tasks: Iterable[TopicPartition], held: Held) -> None:
        """Ask for a share of these. Returns with the first assignment."""

    async def changed(self, generation: int) -> None:
        """Wait until there is an assignment after this one. Raises what makes membership impossible."""

    async def confirm(self) -> bool:
        """Ask the group whether the assignment still holds. False: it does not, or nobody answers."""

    async def leave(self) -> None:
        """Give the tasks back; they are closed already."""


class Alone:
    """The only worker there can be: it owns everything. The embedded log admits nobody else."""

    fresh = True

    def __init__(self, address: str = "") -> None:
        """`address`: where this worker's API answers."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self.generation = 0
        self.name, self.address = process_name(), address

    async def workers(self) -> list[Worker]:
        return [Worker(name=self.name, tasks=self.owned, address=self.address)]

    async def join(self, tasks: Iterable[TopicPartition], held: Held) -> None:
        self.owned = frozenset(tasks)
        self.generation += 1

    async def changed(self, generation: int) -> None:
        if self.generation <= generation:
            await asyncio.Event().wait()

    async def confirm(self) -> bool:
        return True

    async def leave(self) -> None:
        self.owned = frozenset()

"""The interface of operators: the dispatcher lets them handle the records of a chunk."""

from __future__ import annotations

import enum
from typing import Protocol

from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import CoroutineDriver
from tidegate.engine.processing.input import Chunk

__all__ = ("Operator", "Pause")


class Pause(enum.Enum):
    """Why an operator returns to the dispatcher."""

    CONTINUE = enum.auto()
    """The chunk is done, or other work runs before its next record: timers, retries, queued work of free keys."""
    TIME_UP = enum.auto()
    SUSPENDED = enum.auto()
    """The handler of the last record has suspended and keeps the driver and the context."""


class Operator(Protocol):
    """Runs one kind of input handler: user functions, message handlers, a shuffle.

    A vectorized function would be another operator: it reads the columns of the chunk (`read_columns`), assigns
    timestamps by `Input.time`, and reports the number of started records by `Chunk.index`. No other part of the engine
    depends on how records are handled."""

    def run(self, driver: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> Pause: ...

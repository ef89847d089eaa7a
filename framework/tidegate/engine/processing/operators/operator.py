"""What the dispatcher asks of an operator: to handle the records of a chunk."""

from __future__ import annotations

import enum
from typing import Protocol

from tidegate.engine.processing.context import TaskContext
from tidegate.engine.processing.coroutine_driver import CoroutineDriver
from tidegate.engine.processing.input import Chunk

__all__ = ("Operator", "Pause")


class Pause(enum.Enum):
    """Why an operator stops taking up records."""

    CONTINUE = enum.auto()
    """The chunk is done, or other work comes before its next record: timers, repetitions, keys that are free again."""
    TIME_UP = enum.auto()
    SUSPENDED = enum.auto()
    """The handler of the last record has suspended, and keeps the driver and the context: others must go on."""


class Operator(Protocol):
    """One kind of input handler at work: user functions, message handlers, a shuffle.

    A function over batches would be one more: it takes the columns of the chunk (`read_columns`), assigns their time
    by `Input.time`, and says how many it has taken up by `Chunk.index`. Nothing else of the engine asks how records are
    handled."""

    def run(self, driver: CoroutineDriver, context: TaskContext, chunk: Chunk, deadline: float) -> Pause: ...

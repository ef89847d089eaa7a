"""The log cannot do what was asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidegate.errors.base import TidegateError

__all__ = (
    "FencedError",
    "LogError",
    "LogFailedError",
    "LogInUseError",
    "LogUnavailableError",
    "OffsetOutOfRangeError",
    "PartitionCountError",
    "PlacementError",
    "StorageFullError",
    "UnknownTopicError",
)


class LogError(TidegateError):
    """The log cannot do what was asked."""


class LogInUseError(LogError):
    def __init__(self, directory: Path, holder: str) -> None:
        self.directory, self.holder = directory, holder
        super().__init__(
            f"{directory} is held by {holder}. An embedded log has one owning process: stop that process, "
            f"or choose another directory (--data DIR)."
        )


class LogUnavailableError(LogError):
    """The directory or the broker cannot be reached."""


class LogFailedError(LogError):
    """The log itself has failed: its owner must close and reopen it."""


class StorageFullError(LogError):
    def __init__(self, directory: Path, detail: str) -> None:
        self.directory, self.detail = directory, detail
        super().__init__(
            f"no space left under {directory}: {detail}. No committed data is lost. "
            f"Free some space and restart; processing resumes where it stopped."
        )


class UnknownTopicError(LogError):
    def __init__(self, topic: str, known: Iterable[str] = ()) -> None:
        self.topic, self.known = topic, tuple(sorted(known))
        super().__init__(f"there is no topic {topic!r} in the log; known: {', '.join(self.known) or 'none'}")


class PartitionCountError(LogError):
    def __init__(self, topic: str, actual: int, expected: int) -> None:
        self.topic, self.actual, self.expected = topic, actual, expected
        super().__init__(
            f"topic {topic!r} has {actual} partitions, but the app expects {expected}. Keys would move between tasks "
            f"without their state. To change it, set the count back to {actual}, stop the app with a savepoint "
            f"('tidegate savepoint create APP NAME --stop'), and restore that with another parallelism "
            f"('tidegate savepoint restore APP NAME --partitions {expected}'). Or empty all topics with "
            f"'tidegate reset --all'."
        )


class PlacementError(LogError):
    def __init__(self, app: str, service: str, tasks: int) -> None:
        self.app, self.service, self.tasks = app, service, tasks
        super().__init__(
            f"service {service!r} of {app!r} has state in {tasks} tasks, distributed by the partitions of its input; "
            f"its code now declares parallelism= or key_by=, which distributes keys differently. Undo that change, "
            f"stop the app with a savepoint ('tidegate savepoint create APP NAME --stop'), change the code again, and "
            f"restore the savepoint ('tidegate savepoint restore APP NAME'), which moves the state. "
            f"Or delete the state with 'tidegate reset'."
        )


class OffsetOutOfRangeError(LogError):
    def __init__(self, topic: str, partition: int, offset: int, start: int, end: int) -> None:
        self.topic, self.partition, self.offset, self.start, self.end = topic, partition, offset, start, end
        super().__init__(f"offset {offset} of {topic}[{partition}] is outside what the log holds: {start} to {end}")


class FencedError(LogError):
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        super().__init__(f"a newer owner of {transactional_id!r} exists; this one must discard its uncommitted work")

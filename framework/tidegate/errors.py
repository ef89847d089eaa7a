"""Every error that Tidegate raises on purpose.

TidegateError
├── UsageError                     the program is wrong: raised where the mistake was made
│   ├── DefinitionError            a handler, topic or service is declared wrongly
│   ├── UndeclaredOutputError      a handler emits to a topic that its service does not declare
│   ├── UnknownTimerError          a handler sets a timer that nothing handles
│   ├── AppNotFoundError           MODULE:APP does not lead to an app
│   ├── UnknownNameError           no such topic, service or state in this app
│   └── SettingsError              an option or environment variable has an impossible value
├── DataError                      one record is wrong: the service's error policy decides
│   ├── DecodeError                bytes that are not the declared type
│   ├── EncodeError                a value that is not the declared type
│   ├── MissingKeyError            a record without a key reaches a keyed service
│   ├── MisplacedKeyError          a record lies in a partition that is not its key's
│   ├── RecordTooLargeError        the log refuses a record of this size
│   └── HandlerTimeoutError        a handler took longer than its service allows
├── LogError                       the log cannot do what was asked
│   ├── LogInUseError              another process holds this data directory
│   ├── LogUnavailableError        the directory or the broker cannot be reached
│   ├── StorageFullError           no room left on the device
│   ├── UnknownTopicError          no such topic in the log
│   ├── PartitionCountError        a topic has another number of partitions than the app expects
│   ├── OffsetOutOfRangeError      the wanted offset is no longer, or not yet, in the log
│   └── FencedError                a newer owner of this transactional id exists
├── StoreError
│   └── StoreCorruptError          the local store cannot be read; it can be rebuilt from the changelog
├── OwnerError                     the process that owns a log was asked for something
│   ├── OwnerSilentError           it does not answer
│   ├── OwnerLeftError             it stopped in an orderly way, before it took up the request
│   ├── OwnerLostError             it ended before it answered: what became of the request is not known
│   └── RefusedError               it refused, and says why
└── ServiceFailedError             a handler failed and its service's policy is to stop
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = (
    "AppNotFoundError",
    "DataError",
    "DecodeError",
    "DefinitionError",
    "EncodeError",
    "FencedError",
    "HandlerTimeoutError",
    "LogError",
    "LogInUseError",
    "LogUnavailableError",
    "MisplacedKeyError",
    "MissingKeyError",
    "OffsetOutOfRangeError",
    "OwnerError",
    "OwnerLeftError",
    "OwnerLostError",
    "OwnerSilentError",
    "PartitionCountError",
    "RecordTooLargeError",
    "RefusedError",
    "ServiceFailedError",
    "SettingsError",
    "StorageFullError",
    "StoreCorruptError",
    "StoreError",
    "TidegateError",
    "UndeclaredOutputError",
    "UnknownNameError",
    "UnknownTimerError",
    "UnknownTopicError",
    "UsageError",
)


class TidegateError(Exception):
    """The root of all errors that Tidegate raises on purpose."""


class UsageError(TidegateError):
    """The program or the command is wrong."""


class DefinitionError(UsageError):
    """A handler, topic or service is declared wrongly."""


class UndeclaredOutputError(UsageError):
    def __init__(self, service: str, topic: str, declared: Iterable[str]) -> None:
        self.service, self.topic, self.declared = service, topic, tuple(declared)
        known = ", ".join(self.declared) or "none"
        super().__init__(
            f"service {service!r} emits to {topic!r}, which it does not declare (declared: {known}). "
            f"Add the topic to its outputs: @app.process(..., to=[...])."
        )


class UnknownTimerError(UsageError):
    def __init__(self, service: str, name: str) -> None:
        self.service, self.name = service, name
        super().__init__(
            f"service {service!r} sets a timer {name!r} that nothing handles. "
            f"Write a handler for it: @{service}.on_timer({name!r})."
        )


class AppNotFoundError(UsageError):
    """MODULE:APP does not lead to an app."""


class UnknownNameError(UsageError):
    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        super().__init__(f"there is no {kind} {name!r} here; known: {', '.join(self.known) or 'none'}")


class SettingsError(UsageError):
    """An option or an environment variable has an impossible value."""


class DataError(TidegateError):
    """One record is wrong; everything else goes on, as the service's error policy says."""


class DecodeError(DataError):
    """Bytes that are not the declared type."""


class EncodeError(DataError):
    """A value that is not the declared type."""


class MissingKeyError(DataError):
    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"a record of {topic!r} has no key, and a keyed service needs one. "
            f"Send it with a key, or give the service key_by=... to derive it from the value."
        )


class MisplacedKeyError(DataError):
    def __init__(self, topic: str, partition: int, expected: int, key: bytes) -> None:
        self.topic, self.partition, self.expected, self.key = topic, partition, expected, key
        super().__init__(
            f"the key {key!r} of {topic!r} lies in partition {partition}, but murmur2 puts it in {expected}: "
            f"its sender partitions differently (librdkafka's default is CRC32). "
            f"Set the sender's partitioner to murmur2, or give the service key_by=... to place records anew."
        )


class RecordTooLargeError(DataError):
    def __init__(self, topic: str, size: int, limit: int) -> None:
        self.topic, self.size, self.limit = topic, size, limit
        super().__init__(f"{size:,} bytes for {topic} are over the limit of {limit:,} bytes for a record")


class HandlerTimeoutError(DataError):
    def __init__(self, service: str, seconds: float) -> None:
        self.service, self.seconds = service, seconds
        super().__init__(f"a handler of {service!r} did not finish within {seconds:g} s (its timeout=)")


class LogError(TidegateError):
    """The log cannot do what was asked."""


class LogInUseError(LogError):
    def __init__(self, directory: Path, holder: str) -> None:
        self.directory, self.holder = directory, holder
        super().__init__(
            f"{directory} is held by {holder}. One process owns an embedded log: stop that one, "
            f"or give this one another directory (--data DIR)."
        )


class LogUnavailableError(LogError):
    """The directory or the broker cannot be reached."""


class StorageFullError(LogError):
    def __init__(self, directory: Path, detail: str) -> None:
        self.directory, self.detail = directory, detail
        super().__init__(
            f"no room left under {directory}: {detail}. Nothing that was committed is lost. "
            f"Free some space and start again; work resumes where it stopped."
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
            f"without their state. Set the count back to {actual}, or empty all topics with 'tidegate reset --all'."
        )


class OffsetOutOfRangeError(LogError):
    def __init__(self, topic: str, partition: int, offset: int, start: int, end: int) -> None:
        self.topic, self.partition, self.offset, self.start, self.end = topic, partition, offset, start, end
        super().__init__(f"offset {offset} of {topic}[{partition}] is outside what the log holds: {start} to {end}")


class FencedError(LogError):
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        super().__init__(f"a newer owner of {transactional_id!r} exists; this one must throw its work away")


class StoreError(TidegateError):
    """The local store failed."""


class StoreCorruptError(StoreError):
    def __init__(self, directory: Path, detail: str) -> None:
        self.directory, self.detail = directory, detail
        super().__init__(f"the local store in {directory} cannot be read ({detail}); it is rebuilt from its changelog")


class OwnerError(TidegateError):
    """The process that owns a log was asked for something."""


class OwnerSilentError(OwnerError):
    def __init__(self, owner: str, seconds: float) -> None:
        self.owner, self.seconds = owner, seconds
        super().__init__(
            f"{owner} holds the log but has not answered for {seconds:g} s. If it hangs, stop it and try again."
        )


class OwnerLeftError(OwnerError):
    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"{owner} stopped before it took up the request; nothing was done. Try again.")


class OwnerLostError(OwnerError):
    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"{owner} ended before it answered: the last request may have been carried out, or not")


class RefusedError(OwnerError):
    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class ServiceFailedError(TidegateError):
    def __init__(self, service: str, where: str, cause: BaseException) -> None:
        self.service, self.where, self.cause = service, where, cause
        super().__init__(
            f"service {service!r} stopped at {where}: {type(cause).__name__}: {cause}\n"
            f"Nothing of that record was committed; it is read again at the next start. Mend the handler, or choose "
            f"what happens to such records: @app.process(..., errors=tidegate.DEAD_LETTER), SKIP or retry(...)."
        )

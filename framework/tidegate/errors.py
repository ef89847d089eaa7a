"""Every error that the framework raises on purpose. What is built on it adds some, each with a tree like this one, all
below TidegateError: `jvm.errors`, `tidegate_app.kafka.errors`, `tidegate_spark.errors`.

TidegateError
├── UsageError                     the program is wrong: raised where the mistake was made
│   ├── DefinitionError            a handler, topic or service is declared wrongly
│   ├── UndeclaredOutputError      a handler emits to a topic that its service does not declare
│   ├── UnknownTimerError          a handler sets a timer that nothing handles
│   ├── UnknownMessageError        a service is sent a message of a type that it does not take
│   ├── InsideHandlerError         a handler sends, tells or asks past its context
│   ├── HandlerOverError           a context or a state is used after its handler has ended
│   ├── AppNotFoundError           MODULE:APP does not lead to an app
│   ├── UnknownNameError           no such topic, service or state in this app
│   └── SettingsError              an option or environment variable has an impossible value
├── DataError                      one record is wrong: the service's error policy decides
│   ├── DecodeError                bytes that are not the declared type
│   ├── EncodeError                a value that is not the declared type
│   ├── MissingKeyError            a record without a key reaches a keyed service
│   ├── MisplacedKeyError          a record lies in a partition that is not its key's
│   ├── RecordTooLargeError        the log refuses a record of this size
│   ├── RecordRefusedError         the log refuses a record for another reason, such as its timestamp
│   └── HandlerTimeoutError        a handler took longer than its service allows
├── LogError                       the log cannot do what was asked
│   ├── LogInUseError              another process holds this data directory
│   ├── LogUnavailableError        the directory or the broker cannot be reached
│   ├── LogFailedError             the log itself has failed, and must be opened anew
│   ├── StorageFullError           no room left on the device
│   ├── UnknownTopicError          no such topic in the log
│   ├── PartitionCountError        a topic has another number of partitions than the app expects
│   ├── PlacementError             the code wants keys placed otherwise than the run has placed them
│   ├── OffsetOutOfRangeError      the wanted offset is no longer, or not yet, in the log
│   └── FencedError                a newer owner of this transactional id exists
├── StateError                     recorded state does not fit the code
│   ├── SchemaError                the type of a state has changed in a way that needs a migration
│   ├── DroppedStateError          a state or a service that holds values is no longer declared
│   └── MigrationError             a declared migration failed for a value
├── StoreError                     the local store cannot do what was asked
│   └── StoreCorruptError          the local store cannot be read; it can be rebuilt from the changelog
├── OwnerError                     the process that owns a log was asked for something
│   ├── OwnerSilentError           it does not answer
│   ├── OwnerLeftError             it stopped in an orderly way, before it took up the request
│   ├── OwnerLostError             it ended before it answered: what became of the request is not known
│   └── RefusedError               it refused, and says why
├── RunOverError                   the app was restored: this worker's run is not the current one any more
├── CheckpointError                a checkpoint or savepoint cannot be taken or used
│   ├── CheckpointNotFoundError    there is none of this name
│   ├── CheckpointDamagedError     a file of it is missing, or not what was written
│   ├── CheckpointStorageError     the place where they are kept does not answer, or is full
│   ├── CheckpointFailedError      it was begun and given up; the app goes on
│   └── NoWorkerError              nobody runs who could take one
├── ActorError                     a message was not answered as its sender wished
│   ├── RejectedError              the handler refused it, on purpose: nothing of it happened
│   ├── MessageFailedError         the handler failed, and was given up by its service's policy
│   ├── AskTimeoutError            no reply came in time: the message may still be handled
│   └── IdempotencyError           the same idempotency key came with another message
├── QueryError                     committed state was asked for
│   ├── NotReadyError              the key's task is being restored, or whose it is is not known: ask again
│   ├── ElsewhereError             another worker owns the key's task
│   ├── PositionError              a position token that cannot be waited for here
│   ├── PositionNotReachedError    the wanted position was not committed in time
│   ├── NotQueryableError          the state is declared Queryable(False)
│   ├── ValueTooLargeError         one answer cannot hold the value
│   └── RequestConflictError       an idempotency key was used before, for another request
└── ServiceFailedError             a handler failed and its service's policy is to stop
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = (
    "ActorError",
    "AppNotFoundError",
    "AskTimeoutError",
    "CheckpointDamagedError",
    "CheckpointError",
    "CheckpointFailedError",
    "CheckpointNotFoundError",
    "CheckpointStorageError",
    "DataError",
    "DecodeError",
    "DefinitionError",
    "DroppedStateError",
    "ElsewhereError",
    "EncodeError",
    "FencedError",
    "HandlerOverError",
    "HandlerTimeoutError",
    "IdempotencyError",
    "InsideHandlerError",
    "LogError",
    "LogFailedError",
    "LogInUseError",
    "LogUnavailableError",
    "MessageFailedError",
    "MigrationError",
    "MisplacedKeyError",
    "MissingKeyError",
    "NoWorkerError",
    "NotQueryableError",
    "NotReadyError",
    "OffsetOutOfRangeError",
    "OwnerError",
    "OwnerLeftError",
    "OwnerLostError",
    "OwnerSilentError",
    "PartitionCountError",
    "PlacementError",
    "PositionError",
    "PositionNotReachedError",
    "QueryError",
    "RecordRefusedError",
    "RecordTooLargeError",
    "RefusedError",
    "RejectedError",
    "RequestConflictError",
    "RunOverError",
    "SchemaError",
    "ServiceFailedError",
    "SettingsError",
    "StateError",
    "StorageFullError",
    "StoreCorruptError",
    "StoreError",
    "TidegateError",
    "UndeclaredOutputError",
    "UnknownMessageError",
    "UnknownNameError",
    "UnknownTimerError",
    "UnknownTopicError",
    "UsageError",
    "ValueTooLargeError",
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


class UnknownMessageError(UsageError):
    def __init__(self, service: str, message: str, known: Iterable[str]) -> None:
        self.service, self.message, self.known = service, message, tuple(known)
        if self.known:
            text = f"service {service!r} takes no message {message!r}; it takes: {', '.join(self.known)}."
        else:
            text = f"service {service!r} takes no messages."
        super().__init__(f"{text} Write a handler for it: @{service}.on({message}).")


class InsideHandlerError(UsageError):
    def __init__(self, verb: str, task: str, target: str) -> None:
        self.verb, self.task, self.target = verb, task, target
        if verb == "ask":
            text = (
                f"a handler of {task} asks {target!r}: its request would leave only with the commit that waits for "
                f"the answer. Use ctx.tell({target}, key, message), and let {target!r} tell the answer back."
            )
        elif verb == "tell":
            text = (
                f"a handler of {task} tells {target!r} something outside of its transaction: it would be told again "
                f"whenever the handler is repeated. Use ctx.tell({target}, key, message)."
            )
        else:
            text = (
                f"a handler of {task} sends to {target!r} outside of its transaction: it would be sent again whenever "
                f"the handler is repeated. Declare the topic, @app.process(..., to=[...]), and use "
                f"ctx.emit(value, to={target!r})."
            )
        super().__init__(text)


class HandlerOverError(UsageError):
    def __init__(self) -> None:
        super().__init__(
            "a context and its states are good while their handler runs, and this one has ended. "
            "Wait for what it starts: await asyncio.gather(...), or a TaskGroup."
        )


class AppNotFoundError(UsageError):
    """MODULE:APP does not lead to an app."""


class UnknownNameError(UsageError):
    def __init__(self, kind: str, name: str, known: Iterable[str], *, of: str = "here") -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        super().__init__(f"there is no {kind} {name!r} {of}; known: {', '.join(self.known) or 'none'}")


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
        of_so_many = f" of {limit:,} bytes" if limit else ""
        super().__init__(f"{size:,} bytes for {topic} are over the limit{of_so_many} for a record")


class RecordRefusedError(DataError):
    def __init__(self, topic: str, reason: str) -> None:
        self.topic, self.reason = topic, reason
        super().__init__(f"the log refuses a record for {topic}: {reason}")


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


class LogFailedError(LogError):
    """The log itself has failed: whoever holds it must close it, and open it anew."""


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
            f"without their state. To change it, set the count back to {actual}, stop the app with a savepoint "
            f"('tidegate savepoint create APP NAME --stop'), and restore that with another parallelism "
            f"('tidegate savepoint restore APP NAME --partitions {expected}'). Or empty all topics with "
            f"'tidegate reset --all'."
        )


class PlacementError(LogError):
    def __init__(self, app: str, service: str, tasks: int) -> None:
        self.app, self.service, self.tasks = app, service, tasks
        super().__init__(
            f"service {service!r} of {app!r} has state in {tasks} tasks, placed by the partitions of its input, and "
            f"now its code says parallelism= or key_by=, which places keys otherwise. Take that back, stop the app "
            f"with a savepoint ('tidegate savepoint create APP NAME --stop'), change the code, and restore it "
            f"('tidegate savepoint restore APP NAME'): that moves the state. Or forget it with 'tidegate reset'."
        )


class OffsetOutOfRangeError(LogError):
    def __init__(self, topic: str, partition: int, offset: int, start: int, end: int) -> None:
        self.topic, self.partition, self.offset, self.start, self.end = topic, partition, offset, start, end
        super().__init__(f"offset {offset} of {topic}[{partition}] is outside what the log holds: {start} to {end}")


class FencedError(LogError):
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        super().__init__(f"a newer owner of {transactional_id!r} exists; this one must throw its work away")


class StateError(TidegateError):
    """Recorded state does not fit the code. Nothing of it was changed, and nothing is served."""


class SchemaError(StateError):
    def __init__(self, service: str, problems: Iterable[str]) -> None:
        self.service, self.problems = service, tuple(problems)
        listed = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"the code of service {service!r} does not fit its recorded state:{listed}")


class DroppedStateError(StateError):
    def __init__(self, service: str, states: Mapping[str, Iterable[str]]) -> None:
        """`states`: with the new states that they could have been renamed to. None: the service itself is gone."""
        self.service, self.states = service, {name: tuple(new) for name, new in states.items()}
        listed = [
            f"{name!r} (is {' or '.join(map(repr, new))} the same one, renamed? It begins empty)"
            if new
            else f"{name!r}"
            for name, new in self.states.items()
        ]
        what = f"service {service!r} no longer declares {', '.join(listed)}" if listed else f"there is no {service!r}"
        super().__init__(
            f"{what} in the code, and there is recorded state of it. Declare it again under that name, or have its "
            f"values removed with --allow-dropped."
        )


class MigrationError(StateError):
    def __init__(self, service: str, state: str, key: bytes, cause: BaseException) -> None:
        self.service, self.state, self.key, self.cause = service, state, key, cause
        super().__init__(
            f"the migration of state {state!r} of service {service!r} failed for key {key[:80]!r}: "
            f"{type(cause).__name__}: {cause}. What was migrated before it is kept; mend the migration, and start anew."
        )


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


class RunOverError(TidegateError):
    def __init__(self, app: str, run: str, current: str, savepoint: str) -> None:
        self.app, self.run, self.current, self.savepoint = app, run, current, savepoint
        began = f", which was restored from {savepoint}" if savepoint else ""
        super().__init__(
            f"this worker is of run {run} of {app!r}, and the current one is run {current}{began}. Nothing that this "
            f"worker had not committed by then counts. Start it again: it then works for run {current}."
        )


class CheckpointError(TidegateError):
    """A checkpoint or savepoint cannot be taken or used."""


class CheckpointNotFoundError(CheckpointError):
    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(
            f"there is no checkpoint or savepoint at {where}; 'tidegate savepoint list' shows what there is"
        )


class CheckpointDamagedError(CheckpointError):
    def __init__(self, where: str, detail: str) -> None:
        self.where, self.detail = where, detail
        super().__init__(f"{where} is damaged: {detail}. Use another checkpoint, or bring the file back.")


class CheckpointStorageError(CheckpointError):
    def __init__(self, url: str, cause: object) -> None:
        self.url, self.cause = url, cause
        detail = f"{type(cause).__name__}: {cause}" if isinstance(cause, BaseException) else str(cause)
        super().__init__(
            f"the checkpoint storage {url} cannot be used: {detail}. See to its room, its address "
            f"(checkpoint_storage) and its credentials; processing goes on meanwhile."
        )


class CheckpointFailedError(CheckpointError):
    def __init__(self, epoch: int, reason: str) -> None:
        self.epoch, self.reason = epoch, reason
        what = f"checkpoint {epoch} was given up" if epoch else "no checkpoint was begun"
        super().__init__(f"{what}: {reason.rstrip('.')}. Processing goes on.")


class NoWorkerError(CheckpointError):
    def __init__(self, app: str) -> None:
        self.app = app
        super().__init__(
            f"no worker of {app!r} runs, and its workers are who takes checkpoints. Start one with 'tidegate worker'."
        )


class ActorError(TidegateError):
    """A message was not answered as its sender wished."""


class RejectedError(ActorError):
    """Raise it in the handler of a message to refuse it: nothing of it happens, and whoever asked gets this error."""


class MessageFailedError(ActorError):
    """The handler failed, and its service's policy gave the message up."""

    def __init__(self, service: str, kind: str, reason: str) -> None:
        self.service, self.kind, self.reason = service, kind, reason
        super().__init__(f"service {service!r} could not handle the message: {kind}: {reason}. Nothing of it happened.")


class AskTimeoutError(ActorError, TimeoutError):
    """No reply came in time. The message may still be handled."""

    def __init__(self, service: str, seconds: float, idempotency_key: str | None) -> None:
        self.service, self.seconds, self.idempotency_key = service, seconds, idempotency_key
        again = "with the same idempotency key" if idempotency_key is not None else "only if doubles do no harm"
        super().__init__(
            f"service {service!r} did not reply within {seconds:g} s. The message may be in its mailbox, and is then "
            f"handled when the service comes to it: ask again {again}."
        )


class IdempotencyError(ActorError):
    """The same idempotency key came with another message."""

    def __init__(self, service: str, idempotency_key: str) -> None:
        self.service, self.idempotency_key = service, idempotency_key
        super().__init__(
            f"service {service!r} has handled another message under the idempotency key {idempotency_key!r}: "
            f"a new message needs a new one. Nothing of this one happened."
        )


class QueryError(TidegateError):
    """Committed state was asked for, and cannot be given as asked."""


class NotReadyError(QueryError):
    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"{what} cannot be read now: {reason}. Ask again in a moment.")


class ElsewhereError(QueryError):
    def __init__(self, service: str, task: int) -> None:
        self.service, self.task = service, task
        super().__init__(f"task {task} of service {service!r} runs in another worker")


class PositionError(QueryError):
    """A position token that cannot be waited for here."""


class PositionNotReachedError(QueryError):
    def __init__(self, task: str, seconds: float) -> None:
        self.task, self.seconds = task, seconds
        super().__init__(f"task {task} has not committed the wanted position within {seconds:g} s. Ask again.")


class NotQueryableError(QueryError):
    def __init__(self, service: str, state: str) -> None:
        self.service, self.state = service, state
        super().__init__(f"state {state!r} of service {service!r} is not for others: it is declared Queryable(False)")


class ValueTooLargeError(QueryError):
    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the value takes more than {limit:,} bytes, the limit of an answer (api_max_bytes). Of a map, ask for one "
            f"entry (?at=NAME); of an actor, for its states one by one; in a batch, for fewer keys."
        )


class RequestConflictError(QueryError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the idempotency key {key!r} was used before, for another request. Take a new one.")


class ServiceFailedError(TidegateError):
    def __init__(self, service: str, where: str, cause: BaseException) -> None:
        self.service, self.where, self.cause = service, where, cause
        super().__init__(
            f"service {service!r} stopped at {where}: {type(cause).__name__}: {cause}\n"
            f"Nothing of that record was committed; it is read again at the next start. Mend the handler, or choose "
            f"what happens to such records: @app.process(..., errors=tidegate.DEAD_LETTER), SKIP or retry(...)."
        )

"""Every error that the framework raises on purpose, one module per family.

Packages built on the framework add their own below TidegateError, each with a tree like this one: `jvm.errors`,
`tidegate_app.kafka.errors`, `tidegate_spark.errors`.

TidegateError
├── UsageError                     the program is wrong: raised where the mistake was made
│   ├── DefinitionError            a handler, topic or service is declared wrongly
│   ├── UndeclaredOutputError      a handler emits to a topic that its service does not declare
│   ├── UnknownTimerError          a handler sets a timer for which there is no timer handler
│   ├── UnknownMessageError        a service is sent a message of a type that it does not handle
│   ├── InsideHandlerError         a handler sends, tells or asks outside of its context
│   ├── HandlerOverError           a context or a state is used after its handler has ended
│   ├── AppNotFoundError           MODULE:APP does not lead to an app
│   ├── UnknownNameError           no such topic, service or state in this app
│   └── SettingsError              an option or environment variable has an impossible value
├── DataError                      one record is wrong: the service's error policy decides
│   ├── DecodeError                bytes that are not of the declared type
│   ├── EncodeError                a value that is not of the declared type
│   │   └── TombstoneError         None is sent to a topic that takes no tombstones
│   ├── MissingKeyError            a record without a key reaches a keyed service
│   ├── MisplacedKeyError          a record lies in another partition than its key's
│   ├── RecordTooLargeError        the log refuses a record of this size
│   ├── RecordRefusedError         the log refuses a record for another reason, such as its timestamp
│   ├── ShuffleStepError           a function of a shuffle failed for a record
│   └── HandlerTimeoutError        a handler took longer than its service allows
├── LogError                       the log cannot do what was asked
│   ├── LogInUseError              another process owns this data directory
│   ├── LogUnavailableError        the directory or the broker cannot be reached
│   ├── LogFailedError             the log itself has failed, and must be reopened
│   ├── StorageFullError           no space left on the device
│   ├── UnknownTopicError          no such topic in the log
│   ├── PartitionCountError        a topic has another number of partitions than the app expects
│   ├── PlacementError             the code partitions keys differently from the current run
│   ├── OffsetOutOfRangeError      the requested offset is no longer, or not yet, in the log
│   └── FencedError                a newer owner of this transactional id exists
├── StateError                     recorded state does not fit the code
│   ├── SchemaError                the type of a state has changed in a way that needs a migration
│   ├── DroppedStateError          a state or a service that holds values is no longer declared
│   └── MigrationError             a declared migration failed for a value
├── StoreError                     the local store cannot do what was asked
│   └── StoreCorruptError          the local store cannot be read; it can be rebuilt from the changelog
├── OwnerError                     a request to the process that owns a log was not carried out
│   ├── OwnerSilentError           the owner does not answer
│   ├── OwnerLeftError             the owner shut down in order before it accepted the request
│   ├── OwnerLostError             the owner ended before it answered: the outcome is unknown
│   └── RefusedError               the owner refused the request and gives the reason
├── RunOverError                   the app was restored: this worker's run is no longer the current one
├── CheckpointError                a checkpoint or savepoint cannot be taken or used
│   ├── CheckpointNotFoundError    there is no checkpoint of this name
│   ├── CheckpointDamagedError     a file of the checkpoint is missing or has changed
│   ├── CheckpointStorageError     the checkpoint storage does not answer, or is full
│   ├── CheckpointFailedError      the checkpoint was started and aborted; processing continues
│   └── NoWorkerError              no worker runs that could take a checkpoint
├── ActorError                     a message to an actor was not handled successfully
│   ├── RejectedError              the handler rejected the message: it had no effect
│   ├── MessageFailedError         the handler failed, and the service's error policy gave the message up
│   ├── AskTimeoutError            no reply arrived in time: the message may still be handled
│   └── IdempotencyError           the idempotency key was already used for a different message
├── QueryError                     a query of committed state cannot be answered
│   ├── NotReadyError              the key's task is being restored or reassigned: retry
│   ├── ElsewhereError             another worker owns the key's task
│   ├── PositionError              the position token does not belong to this service or run
│   ├── PositionNotReachedError    the requested position was not committed in time
│   ├── NotQueryableError          the state is declared Queryable(False)
│   ├── ValueTooLargeError         the value exceeds the size limit of a response
│   └── RequestConflictError       the idempotency key was already used for a different request
└── ServiceFailedError             a handler failed, and its service's error policy is to stop
"""

from __future__ import annotations

from tidegate.errors.actor import ActorError, AskTimeoutError, IdempotencyError, MessageFailedError, RejectedError
from tidegate.errors.base import RunOverError, ServiceFailedError, TidegateError
from tidegate.errors.checkpoint import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointFailedError,
    CheckpointNotFoundError,
    CheckpointStorageError,
    NoWorkerError,
)
from tidegate.errors.data import (
    DataError,
    DecodeError,
    EncodeError,
    HandlerTimeoutError,
    MisplacedKeyError,
    MissingKeyError,
    RecordRefusedError,
    RecordTooLargeError,
    ShuffleStepError,
    TombstoneError,
)
from tidegate.errors.log import (
    FencedError,
    LogError,
    LogFailedError,
    LogInUseError,
    LogUnavailableError,
    OffsetOutOfRangeError,
    PartitionCountError,
    PlacementError,
    StorageFullError,
    UnknownTopicError,
)
from tidegate.errors.owner import OwnerError, OwnerLeftError, OwnerLostError, OwnerSilentError, RefusedError
from tidegate.errors.query import (
    ElsewhereError,
    NotQueryableError,
    NotReadyError,
    PositionError,
    PositionNotReachedError,
    QueryError,
    RequestConflictError,
    ValueTooLargeError,
)
from tidegate.errors.state import (
    DroppedStateError,
    MigrationError,
    SchemaError,
    StateError,
    StoreCorruptError,
    StoreError,
)
from tidegate.errors.usage import (
    AppNotFoundError,
    DefinitionError,
    HandlerOverError,
    InsideHandlerError,
    SettingsError,
    UndeclaredOutputError,
    UnknownMessageError,
    UnknownNameError,
    UnknownTimerError,
    UsageError,
)

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
    "ShuffleStepError",
    "StateError",
    "StorageFullError",
    "StoreCorruptError",
    "StoreError",
    "TidegateError",
    "TombstoneError",
    "UndeclaredOutputError",
    "UnknownMessageError",
    "UnknownNameError",
    "UnknownTimerError",
    "UnknownTopicError",
    "UsageError",
    "ValueTooLargeError",
)

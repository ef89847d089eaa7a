"""The context of a handler: the current record, and the handler's outputs, timers and messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple

from tidegate.functions.declaration.references import ServiceReference, TopicReference
from tidegate.functions.declaration.type_variables import TypeVar
from tidegate.logs.base import Headers
from tidegate.time.clock import Duration, Instant

__all__ = ("Context", "Origin", "TaskInfo", "TimeDomain", "Timer", "Timers")

K = TypeVar("K", covariant=True, default=Any)
R = TypeVar("R", contravariant=True, default=Any)
T = TypeVar("T", default=Any)
KT = TypeVar("KT", default=Any)

TimeDomain = Literal["event", "processing"]


class Origin(NamedTuple):
    """Where the current record was read."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class Timer:
    """A timer of a key, set or fired."""

    name: str
    at: int
    """In ms since 1970."""
    time: TimeDomain


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """A task of a service."""

    app: str
    service: str
    number: int
    """The number of the task, and of the partitions that it reads."""


class Timers(ABC):
    """The timers of the current key. A name identifies one timer: setting it again moves it. Each fires once."""

    @abstractmethod
    def at(self, when: Instant, *, name: str, time: TimeDomain = "event") -> None:
        """Set a timer that fires when the watermark (or, with time="processing", the clock) reaches `when`."""

    @abstractmethod
    def after(self, span: Duration, *, name: str, time: TimeDomain = "event") -> None:
        """Set a timer that fires `span` (seconds or a timedelta) after the current record's time, or, with
        time="processing", after the current time of the clock."""

    @abstractmethod
    def cancel(self, name: str) -> bool:
        """Cancel the timer. Returns whether it was set."""

    @abstractmethod
    def get(self, name: str) -> Timer | None:
        """The timer of this name, or None if it is not set."""

    @abstractmethod
    def __iter__(self) -> Iterator[Timer]: ...


class Context(ABC, Generic[K, R]):
    """The current record, and the actions of its handler. Valid until the handler returns.

    `Context[int]` says that keys are whole numbers, and `Context[int, Balance]` also what the handler of a message
    replies with: type checkers then know `ctx.key` and check `ctx.reply`. A bare `Context` leaves both open."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """The second parameter is optional."""
            given = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__((*given, Any) if len(given) == 1 else given)

    @property
    @abstractmethod
    def key(self) -> K:
        """The current key, of the service's key type (text unless declared otherwise)."""

    @property
    @abstractmethod
    def timestamp(self) -> int:
        """The record's time, in ms, by the topic's source of time; in a timer's handler, the timer's time."""

    @property
    @abstractmethod
    def watermark(self) -> int:
        """The task's watermark: records with this time or less are no longer expected."""

    @property
    @abstractmethod
    def late(self) -> bool:
        """Whether the record's time is not after the watermark."""

    @property
    @abstractmethod
    def now(self) -> int:
        """The clock, in ms."""

    @property
    @abstractmethod
    def headers(self) -> Headers:
        """The record's headers, in their order: pairs of a name and bytes."""

    @property
    @abstractmethod
    def origin(self) -> Origin | None:
        """The position at which the record was read, before any re-keying; None in a timer's handler."""

    @property
    @abstractmethod
    def timer(self) -> Timer | None:
        """The timer that fired; None for a record."""

    @property
    @abstractmethod
    def task(self) -> TaskInfo:
        """The task that handles the record."""

    @property
    @abstractmethod
    def timers(self) -> Timers:
        """The timers of the current key."""

    @abstractmethod
    def emit(
        self,
        value: T,
        *,
        to: TopicReference[T] | str | None = None,
        key: Any = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> None:
        """Emit a value, as part of this record's transaction. None is emitted as a tombstone, a record without a value,
        if the topic is compacted or its type allows None.

        `to`: one of the service's declared outputs, a topic or the name of one; without it, the first. `key`: else the
        topic's own key function, else the current key. `timestamp`: else the current record's."""

    @abstractmethod
    def delete(
        self,
        key: Any,
        *,
        to: TopicReference[Any] | str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> None:
        """Emit a tombstone for a key, like `emit(None, key=key)`. In a compacted topic it deletes the key."""

    @abstractmethod
    def tell(
        self,
        service: ServiceReference[KT] | str,
        key: KT,
        message: Any,
        *,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> None:
        """Put a message into the mailbox of another actor, or of this one, as part of this record's transaction.

        `service`: of this app, itself or by name. `timestamp`: else the current record's."""

    @abstractmethod
    def reply(self, value: R) -> None:
        """Reply to the current message, once. `ask` returns the value when this record is committed; a message that was
        sent with `tell` has no reply. Only handlers of messages can reply."""

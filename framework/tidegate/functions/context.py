"""The context of a handler: the current record, timers, emitting, messages."""

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
    """The position of the current record in the log."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class Timer:
    """A timer of a key, pending or fired."""

    name: str
    at: int
    """Milliseconds since 1970."""
    time: TimeDomain
    """Whether `at` is compared with the watermark or with the clock."""


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """A task of a service, as `open` and lifecycle hooks get it."""

    app: str
    service: str
    number: int
    """The task's number within the service: that of the partitions which it reads."""


class Timers(ABC):
    """The timers of the current key, `ctx.timers`. A key has one timer per name, which fires once; setting it again
    moves it. Iterating gives the pending timers."""

    @abstractmethod
    def at(self, when: Instant, *, name: str, time: TimeDomain = "event") -> None:
        """Set a timer that fires when the watermark reaches `when`; with time="processing", when the clock does.

        when: milliseconds since 1970, or an aware datetime. name: as in `@service.on_timer(name)`."""

    @abstractmethod
    def after(self, span: Duration, *, name: str, time: TimeDomain = "event") -> None:
        """Set a timer that fires `span` after the current record's timestamp; with time="processing", after now.

        span: seconds, or a timedelta."""

    @abstractmethod
    def cancel(self, name: str) -> bool:
        """Remove the timer. False: it was not set."""

    @abstractmethod
    def get(self, name: str) -> Timer | None:
        """The pending timer, or None."""

    @abstractmethod
    def __iter__(self) -> Iterator[Timer]: ...


class Context(ABC, Generic[K, R]):
    """The current record, and what a handler can do with it. Valid until the handler ends.

    `Context[int]` declares the type of the keys, and `Context[int, Balance]` also that of replies, so that type
    checkers know `ctx.key` and check `ctx.reply`. In a bare `Context` both are Any."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """The type of replies is optional."""
            arguments = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__((*arguments, Any) if len(arguments) == 1 else arguments)

    @property
    @abstractmethod
    def key(self) -> K:
        """The current key, of the service's key type (default: str)."""

    @property
    @abstractmethod
    def timestamp(self) -> int:
        """The record's time in ms, from the topic's time source; in a timer handler, the time that was set."""

    @property
    @abstractmethod
    def watermark(self) -> int:
        """The task's event time in ms: no further records with this timestamp or an earlier one are expected."""

    @property
    @abstractmethod
    def late(self) -> bool:
        """Whether the record's timestamp is not after the watermark."""

    @property
    @abstractmethod
    def now(self) -> int:
        """The time of the clock in ms: processing time."""

    @property
    @abstractmethod
    def headers(self) -> Headers:
        """The record's headers in their order: pairs of a name and bytes."""

    @property
    @abstractmethod
    def origin(self) -> Origin | None:
        """The record's topic, partition and offset (before a shuffle, if it was re-keyed); None in a timer handler."""

    @property
    @abstractmethod
    def timer(self) -> Timer | None:
        """The timer that fired; None for a record."""

    @property
    @abstractmethod
    def task(self) -> TaskInfo:
        """The task that runs this handler."""

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
        """Emit a record to an output topic, in the same transaction as the current record.

        value: None is a tombstone, if the topic is compacted or its type allows None. to: a declared output of the
        service, as a topic or by name; default: the first. key: default: the topic's key function of the value, or
        without one the current key. timestamp: default: that of the current record."""

    @abstractmethod
    def delete(
        self,
        key: Any,
        *,
        to: TopicReference[Any] | str | None = None,
        timestamp: Instant | None = None,
        headers: Headers = (),
    ) -> None:
        """Emit a tombstone for a key, as `emit(None, key=key)` does. It removes the key from a compacted topic.

        to, timestamp: as for `emit`."""

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
        """Send a message to an actor, in the same transaction as the current record.

        service: a service of this app, or its name. key: the actor; it may be the current one. timestamp: default: that
        of the current record."""

    @abstractmethod
    def reply(self, value: R) -> None:
        """Reply to the current message, at most once. `ask` returns the value when this message is committed; the reply
        to a message from `tell` is discarded. Only message handlers can reply."""

"""What a handler can know and do besides its state."""

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
    """A timer of a key, as it is set, or as it fired."""

    name: str
    at: int
    """In ms since 1970."""
    time: TimeDomain


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """The task that a function is opened for."""

    app: str
    service: str
    number: int
    """Which of the service's tasks: the number of the partitions that it reads."""


class Timers(ABC):
    """The timers of the current key. A name stands for one timer: setting it again moves it. Each fires once."""

    @abstractmethod
    def at(self, when: Instant, *, name: str, time: TimeDomain = "event") -> None:
        """Fire when the watermark (or, with time="processing", the clock) reaches `when`."""

    @abstractmethod
    def after(self, span: Duration, *, name: str, time: TimeDomain = "event") -> None:
        """Fire `span` (seconds or a timedelta) after the current record's time, or from now by the clock."""

    @abstractmethod
    def cancel(self, name: str) -> bool:
        """Forget it. False: there was none."""

    @abstractmethod
    def get(self, name: str) -> Timer | None:
        """As it is set; None: it is not."""

    @abstractmethod
    def __iter__(self) -> Iterator[Timer]: ...


class Context(ABC, Generic[K, R]):
    """The current record and what can be done about it. Valid until the handler returns, not longer.

    `Context[int]` says that keys are whole numbers, and `Context[int, Balance]` also what the handler of a message
    replies with: type checkers then know `ctx.key` and check `ctx.reply`. A bare `Context` leaves both open."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """The second one may be left out."""
            given = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__((*given, Any) if len(given) == 1 else given)

    @property
    @abstractmethod
    def key(self) -> K:
        """The key whose actor this is, as the service's key type (text unless declared otherwise)."""

    @property
    @abstractmethod
    def timestamp(self) -> int:
        """The record's time, in ms, by the topic's time source; in a timer's handler, the time it was set for."""

    @property
    @abstractmethod
    def watermark(self) -> int:
        """How far event time has come in this task: no record with this time or less is expected any more."""

    @property
    @abstractmethod
    def late(self) -> bool:
        """Whether the record came behind the watermark."""

    @property
    @abstractmethod
    def now(self) -> int:
        """The clock, in ms."""

    @property
    @abstractmethod
    def headers(self) -> Headers:
        """The record's own, in their order: pairs of a name and bytes."""

    @property
    @abstractmethod
    def origin(self) -> Origin | None:
        """Where the record was read (before it was re-keyed, if it was); None in a timer's handler."""

    @property
    @abstractmethod
    def timer(self) -> Timer | None:
        """The timer that fired; None for a record."""

    @property
    @abstractmethod
    def task(self) -> TaskInfo:
        """Which of the service's tasks this is."""

    @property
    @abstractmethod
    def timers(self) -> Timers:
        """Those of the current key."""

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
        """Send a value on, as part of this record's transaction. None is sent as a tombstone, a record without a value,
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
        """Send a tombstone for a key: the same as to emit None under it. In a compacted topic it removes the key."""

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
        """Answer the message that is being handled, once; whoever asked gets it when this record is committed. If
        nobody asked, nothing is sent. Only the handler of a message can reply."""

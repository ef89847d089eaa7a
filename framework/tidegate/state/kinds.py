"""The kinds of state that a handler can declare: the users' contract, independent of the state backend.

All of it is local and synchronous. What a handler changes, in place or by assignment, is committed with the record that
it handles, together with what it emits and the timers that it sets; if the handler fails, none of it happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from tidegate.errors import DefinitionError, UsageError

__all__ = (
    "TTL",
    "Aggregate",
    "AggregateFunction",
    "AggregatingState",
    "Default",
    "ListState",
    "MapState",
    "OperatorState",
    "Queryable",
    "Redistribute",
    "Reduce",
    "ReducingState",
    "State",
    "ValueState",
    "Version",
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
Acc = TypeVar("Acc")


class State(ABC):
    """The base of all kinds."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove everything that this state has for the current key."""


class _NoTruth(State):
    """Holds one value, and is not it: `if state:` would be true whatever it holds."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker that does not see it says that `if state:` is always true

        def __bool__(self) -> bool:
            raise UsageError(
                f"a {_kind_of(type(self))} is neither true nor false, as it is not what it holds. "
                f"Write 'if state.value:', or 'if state.value is not None:' where 0 and '' count, too"
            )


def _kind_of(cls: type) -> str:
    """The name in the handler's declaration."""
    return next(base.__name__ for base in cls.__mro__ if _NoTruth in base.__bases__)


class ValueState(_NoTruth, Generic[T]):
    """One value per key.

    `value` is the default until it is set: `Annotated[ValueState[int], Default(0)]`. Without a default it is None, and
    the type says so: `ValueState[int | None]`. None is the same as nothing: setting it clears. To forget a value that
    has a default, `clear()` it: what is set to None may read as None until the handler ends.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def value(self) -> T:
        """The value that is set, which may be mutated in place; else the default."""

    @value.setter
    @abstractmethod
    def value(self, value: T) -> None: ...

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether a value is set; a default does not count."""


class ListState(State, Generic[T]):
    """A list per key. Appending costs the same however long it is. Like a list, it is true if it holds an item."""

    __slots__ = ()

    @abstractmethod
    def append(self, item: T) -> None: ...

    @abstractmethod
    def extend(self, items: Iterable[T]) -> None: ...

    @abstractmethod
    def replace(self, items: Iterable[T]) -> None:
        """Replace the whole list."""

    @abstractmethod
    def popleft(self) -> T:
        """Remove and return the first item; IndexError when there is none."""

    @abstractmethod
    def __iter__(self) -> Iterator[T]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> T: ...


class MapState(State, MutableMapping[K, V], Generic[K, V]):
    """A map per key, of any size: only the entries that are touched are read and written.

    Keys of int, float, str, bytes, bool, datetime, date, and tuples of these are iterated in their order; others in the
    order of their JSON. During an iteration entries may be changed, added and removed: an entry that is removed before
    its turn does not come, and an entry that is added does not come either. With a `Default`, a missing entry reads as
    that, as in a defaultdict. Like a dict, it is true if it holds an entry.
    """

    __slots__ = ()

    @abstractmethod
    def range(
        self, start: K | tuple[Any, ...] | None = None, end: K | tuple[Any, ...] | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        """The entries from `start` up to but not including `end`, in the order of the keys, read lazily. A bound may be
        a prefix of a tuple. `reverse`: in reverse order."""

    @abstractmethod
    def first(self) -> tuple[K, V] | None:
        """The entry with the least key, or None."""

    @abstractmethod
    def last(self) -> tuple[K, V] | None:
        """The entry with the greatest key, or None."""


class ReducingState(_NoTruth, Generic[T]):
    """One value per key, reduced from the added values. Declare how: `Annotated[ReducingState[int], Reduce(max)]`."""

    __slots__ = ()

    @abstractmethod
    def add(self, item: T) -> None: ...

    @property
    @abstractmethod
    def value(self) -> T | None: ...


class AggregatingState(_NoTruth, Generic[In, Out]):
    """Like ReducingState, with another type inside: `Annotated[AggregatingState[float, float], Aggregate(Mean())]`."""

    __slots__ = ()

    @abstractmethod
    def add(self, item: In) -> None: ...

    @property
    @abstractmethod
    def value(self) -> Out | None: ...


class OperatorState(State, Generic[T]):
    """A list per task instead of per key, for data of the partition as a whole. Handlers of different keys overlap, so
    a handler's changes are applied to the list as it is when the handler ends; to change an item, replace the list."""

    __slots__ = ()

    @abstractmethod
    def append(self, item: T) -> None: ...

    @abstractmethod
    def replace(self, items: Iterable[T]) -> None: ...

    @abstractmethod
    def __iter__(self) -> Iterator[T]: ...

    @abstractmethod
    def __len__(self) -> int: ...


class AggregateFunction(ABC, Generic[In, Acc, Out]):
    """The function of an AggregatingState. The accumulator is what is stored."""

    @abstractmethod
    def create(self) -> Acc:
        """An empty accumulator."""

    @abstractmethod
    def add(self, accumulator: Acc, item: In) -> Acc:
        """The accumulator with one more item; it may be mutated and returned."""

    @abstractmethod
    def result(self, accumulator: Acc) -> Out:
        """The value of the state, from the accumulator."""


@dataclass(frozen=True)
class Default:
    """The value of a state (or of a map's missing entry) before it is set: `Annotated[ValueState[int], Default(0)]`.

    Mutable values need a factory: `Default(factory=list)`."""

    value: Any = None
    factory: Callable[[], Any] | None = None

    def make(self) -> Any:
        return self.factory() if self.factory is not None else self.value


@dataclass(frozen=True, init=False)
class TTL:
    """Time to live: `Annotated[ValueState[int | None], TTL(days=30)]`. An expired value is never returned,
    and is removed.

    It counts from the last write, or also from the last read with `on="access"`; in processing time, or with
    `time="event"` in event time. Entries of maps and lists expire individually."""

    ms: int
    on: Literal["write", "access"]
    time: Literal["processing", "event"]

    def __init__(
        self,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        on: Literal["write", "access"] = "write",
        time: Literal["processing", "event"] = "processing",
    ) -> None:
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if span < timedelta(milliseconds=1):
            raise DefinitionError("a TTL must be a millisecond or longer, for example TTL(days=30)")
        if on not in ("write", "access"):
            raise DefinitionError(f"a TTL counts from the last write or access: on='write' or 'access', not {on!r}")
        if time not in ("processing", "event"):
            raise DefinitionError(
                f"a TTL is measured in processing time or event time: time='processing' or 'event', not {time!r}"
            )
        object.__setattr__(self, "ms", round(span.total_seconds() * 1000))
        object.__setattr__(self, "on", on)
        object.__setattr__(self, "time", time)


@dataclass(frozen=True)
class Reduce:
    """The function with which a ReducingState combines its value with an added one."""

    function: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Aggregate:
    """The aggregate function of an AggregatingState."""

    function: AggregateFunction[Any, Any, Any]

    def __post_init__(self) -> None:
        if isinstance(self.function, type):
            raise DefinitionError(f"an Aggregate takes an object, not a class: Aggregate({self.function.__name__}())")


@dataclass(frozen=True)
class Queryable:
    """Whether a state can be read over HTTP: `Annotated[ValueState[str | None], Queryable(False)]` keeps it inside."""

    allowed: bool = True


@dataclass(frozen=True)
class Redistribute:
    """How an OperatorState is redistributed when the number of tasks changes: `split` divides its items among the
    tasks, `union` gives all of them to every task."""

    how: Literal["split", "union"] = "split"

    def __post_init__(self) -> None:
        if self.how not in ("split", "union"):
            raise DefinitionError(f"an OperatorState is redistributed by 'split' or 'union', not {self.how!r}")


@dataclass(frozen=True)
class Version:
    """The version of a state's type: `Annotated[ValueState[Pair | None], Version(2)]`. It starts at 1.

    Increase it with an incompatible change of the type, and write a migration of old values:
    `@service.migrate(...)`."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise DefinitionError(f"versions of states begin with 1, and {self.number} is less")

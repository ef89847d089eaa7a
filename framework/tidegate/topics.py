"""A topic of an app, as users declare it: what its values are, and how they are sent from outside of services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, overload

from tidegate.errors import DefinitionError
from tidegate.functions.declaration.references import TopicReference
from tidegate.functions.declaration.type_variables import TypeVar
from tidegate.functions.topics import TopicDefinition, TopicHeaders
from tidegate.logs.base import Headers
from tidegate.time.clock import Instant

__all__ = ("Publisher", "Topic", "definition_of")

T = TypeVar("T", default=Any)


class Publisher(Protocol):
    """Appends to topics of a running app."""

    async def send(
        self,
        topic: TopicDefinition,
        value: Any,
        *,
        key: Any,
        timestamp: Instant | float | None,
        headers: TopicHeaders,
    ) -> int | None: ...

    async def send_many(
        self, topic: TopicDefinition, values: Iterable[Any], *, timestamp: Instant | None, headers: Headers
    ) -> Mapping[int, int]: ...


class Topic(TopicReference[T], Generic[T]):
    """A topic whose values are of type T, made by `app.topic(name, value_type=T)`. Services read it and emit to it;
    Faust's agents do, too."""

    def __init__(self, definition: TopicDefinition, publisher: Callable[[], Publisher]) -> None:
        self._definition, self._publisher = definition, publisher

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @property
    def definition(self) -> TopicDefinition:
        """What was declared."""
        return self._definition

    @overload
    async def send(
        self, value: T, *, key: Any = ..., timestamp: Instant | float | None = ..., headers: TopicHeaders = ...
    ) -> int | None: ...

    @overload
    async def send(
        self, value: None, *, key: Any, timestamp: Instant | float | None = ..., headers: TopicHeaders = ...
    ) -> int | None: ...

    async def send(
        self,
        value: T | None,
        *,
        key: Any = None,
        timestamp: Instant | float | None = None,
        headers: TopicHeaders = (),
    ) -> int | None:
        """Append one value from outside of a service: from a timer, a web view, an agent. None is a tombstone, which
        deletes its key from a compacted topic.

        key: else the topic's own function gives it. timestamp: milliseconds since 1970 or an aware datetime, else now;
        a float is Faust's seconds. Returns a position after the record, when it is durable. Within a Faust agent the
        record goes through Faust's producer: it is durable before the agent's position is committed, and the result is
        None."""
        return await self._publisher().send(self._definition, value, key=key, timestamp=timestamp, headers=headers)

    async def send_many(
        self, values: Iterable[T], *, timestamp: Instant | None = None, headers: Headers = ()
    ) -> Mapping[int, int]:
        """Append values, keyed by the topic's own function, in one transaction: all of them or none.

        Returns, for each partition that got some, the position after its last one, when all are durable."""
        return await self._publisher().send_many(self._definition, values, timestamp=timestamp, headers=headers)


def definition_of(what: str, topic: object) -> TopicDefinition:
    """`what` needs a topic of an app: a name, a type or a topic of Faust's is refused."""
    if not isinstance(topic, Topic):
        if any(base.__module__.startswith("faust.") for base in type(topic).__mro__):
            raise DefinitionError(
                f"{what} {topic}, a topic of Faust's alone. For services: "
                f"app.topic(name, value_type=..., key=..., partitions=..., retention=..., ...)"
            )
        raise DefinitionError(f"{what} {topic!r}, which is no topic made by app.topic(...)")
    return topic.definition

"""Topic: a declared topic of an app, and sending to it from outside of services."""

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
    """A topic with values of type T, declared by `app.topic(name, value_type=T)`.

    Services read it (`@app.process(topic)`) and emit to it (`to=topic`), and so do Faust agents. `send` and `send_many`
    append to it from outside of services."""

    def __init__(self, definition: TopicDefinition, publisher: Callable[[], Publisher]) -> None:
        self._definition, self._publisher = definition, publisher

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @property
    def definition(self) -> TopicDefinition:
        """The declaration."""
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
        """Append one value, from outside of a service: from a Faust timer, a web view or an agent.

        value: None is a tombstone, which deletes the key from a compacted topic. key: default: the topic's key function
        of the value. timestamp: milliseconds since 1970 or an aware datetime; a float is seconds, as in Faust; default:
        now.

        Returns the position after the record, once it is durable. In a Faust agent, Faust's producer sends the record:
        it is durable before the agent's offset is committed, and the result is None."""
        return await self._publisher().send(self._definition, value, key=key, timestamp=timestamp, headers=headers)

    async def send_many(
        self, values: Iterable[T], *, timestamp: Instant | None = None, headers: Headers = ()
    ) -> Mapping[int, int]:
        """Append values in one transaction: all of them or none. The topic's key function gives their keys.

        timestamp: of all records; default: now. Returns the position after the last record of each partition, once all
        are durable."""
        return await self._publisher().send_many(self._definition, values, timestamp=timestamp, headers=headers)


def definition_of(what: str, topic: object) -> TopicDefinition:
    """The definition of an app's topic. DefinitionError: it is a name, a type or a Faust topic. `what` begins the
    message."""
    if not isinstance(topic, Topic):
        if any(base.__module__.startswith("faust.") for base in type(topic).__mro__):
            raise DefinitionError(
                f"{what} {topic}, which only Faust knows. Declare it for services: "
                f"app.topic(name, value_type=..., key=..., partitions=..., retention=..., ...)"
            )
        raise DefinitionError(f"{what} {topic!r}, which is not a topic declared by app.topic(...)")
    return topic.definition

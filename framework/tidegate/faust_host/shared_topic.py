"""A topic that services and agents share, as Faust knows it: one name, one type, one way to write keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import faust
from faust.exceptions import KeyDecodeError, ValueDecodeError
from faust.topics import Topic as FaustTopic

from tidegate.errors import DecodeError
from tidegate.functions.messages import refuse_in_handlers
from tidegate.functions.topics import TopicDefinition
from tidegate.host.topic_publisher import in_milliseconds, plain_headers
from tidegate.keys import decode_key, encode_key
from tidegate.time.clock import Instant

if TYPE_CHECKING:
    from tidegate.faust_host.hosted_app import HostedApp

__all__ = ("SharedTopic", "TopicSchema")


class TopicSchema(faust.Schema[Any, Any]):
    """Reads and writes keys and values for agents as services do.

    A topic without a type is Faust's matter: a `faust.Record` comes back as what it was. Bytes are written as they are,
    so that agents can forward what they do not look into."""

    def __init__(self, definition: TopicDefinition) -> None:
        self._definition, self._key_type = definition, definition.key_type
        self._typed = definition.codec.type is not Any
        super().__init__(key_type=definition.key_type, value_type=definition.codec.type if self._typed else None)

    def loads_key(self, app: Any, message: Any, *, loads: Any = None, serializer: Any = None) -> Any:
        if message.key is None:
            return None
        try:
            return decode_key(message.key, self._key_type)
        except DecodeError as error:
            raise KeyDecodeError(str(error)) from error

    def loads_value(self, app: Any, message: Any, *, loads: Any = None, serializer: Any = None) -> Any:
        if message.value is not None and not self._typed:
            return super().loads_value(app, message, loads=loads, serializer=serializer)
        try:
            return self._definition.decode(message.value)
        except DecodeError as error:
            raise ValueDecodeError(str(error)) from error

    def dumps_key(self, app: Any, key: Any, *, serializer: Any = None, headers: Any = None) -> tuple[Any, Any]:
        return encode_key(key), headers

    def dumps_value(self, app: Any, value: Any, *, serializer: Any = None, headers: Any = None) -> tuple[Any, Any]:
        if isinstance(value, bytes):
            return value, headers
        if value is not None and (serializer or not self._typed):
            return super().dumps_value(app, value, serializer=serializer, headers=headers)
        return self._definition.encode(value), headers


class SharedTopic(FaustTopic):
    """A topic of an app, as Faust knows it: agents read and write it as services do."""

    app: HostedApp

    def __init__(self, app: Any, *, definition: TopicDefinition, **options: Any) -> None:
        self.definition = definition
        given = {"topics": (definition.name,), "partitions": definition.partitions or None, **options}
        super().__init__(app, **{**given, "schema": TopicSchema(definition)})

    async def send(self, *, timestamp: Any = None, **options: Any) -> Any:
        """Faust's own send: what is returned can be awaited until the record is there."""
        refuse_in_handlers("send", self.definition.name)
        self.app.require_broker(f"sending to app.faust.topic({self.definition.name!r})")
        return await super().send(timestamp=timestamp, **options)

    async def declare(self) -> None:
        """Create it, as a worker does when it starts."""
        await self.app.declare_topics()

    def as_future_message(
        self,
        key: Any = None,
        value: Any = None,
        partition: int | None = None,
        timestamp: Instant | float | None = None,
        headers: Any = None,
        schema: Any = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
        *options: Any,
        **others: Any,
    ) -> Any:
        """What Faust's producer is handed: keyed, and stamped, as services do it."""
        raw, _ = self.prepare_value(value, value_serializer, schema, {})  # first: a key function may not know the type
        if key is None and value is not None and not self._is_forwarded(value):
            key = self.definition.key_of(value)
        return super().as_future_message(
            key, raw, partition, _in_seconds(timestamp), dict(plain_headers(headers)), schema, key_serializer, None,
            *options, **others,
        )  # fmt: skip

    def _is_forwarded(self, value: Any) -> bool:
        """Bytes that came from a topic: what they say is not known."""
        return isinstance(value, bytes) and self.definition.codec.type is not bytes

    def _clone_args(self) -> Mapping[str, Any]:
        return {**super()._clone_args(), "definition": self.definition}

    def derive_topic(self, **options: Any) -> Any:
        """Faust's own: what `group_by` and `through` make of it, services do not know."""
        plain = FaustTopic(
            self.app, topics=self.topics, schema=TopicSchema(self.definition), partitions=self.partitions
        )
        return plain.derive_topic(**options)


def _in_seconds(timestamp: Instant | float | None) -> float | None:
    when = in_milliseconds(timestamp)
    return None if when is None else when / 1000

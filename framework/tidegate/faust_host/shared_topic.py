"""A topic that services and agents share: one name, one type, and the same codecs for keys and values."""

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
    """A topic of an app, for Faust: agents read and write it with the codecs of services."""

    app: HostedApp

    def __init__(self, app: Any, *, definition: TopicDefinition, **options: Any) -> None:
        self.definition = definition
        given = {"topics": (definition.name,), "partitions": definition.partitions or None, **options}
        super().__init__(app, **{**given, "schema": TopicSchema(definition)})

    async def send(self, *, timestamp: Any = None, **options: Any) -> Any:
        """Faust's own send: the result can be awaited until the record is acknowledged."""
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
        """The record for Faust's producer, with key and timestamp as services set them."""
        raw, _ = self.prepare_value(value, value_serializer, schema, {})  # first: a key function may not know the type
        if key is None and value is not None and not self._is_forwarded(value):
            key = self.definition.key_of(value)
        return super().as_future_message(
            key, raw, partition, _in_seconds(timestamp), dict(plain_headers(headers)), schema, key_serializer, None,
            *options, **others,
        )  # fmt: skip

    def _is_forwarded(self, value: Any) -> bool:
        """Bytes that were read from a topic, and are not decoded."""
        return isinstance(value, bytes) and self.definition.codec.type is not bytes

    def _clone_args(self) -> Mapping[str, Any]:
        return {**super()._clone_args(), "definition": self.definition}

    def derive_topic(self, **options: Any) -> Any:
        """Faust's own topic: services do not know the topics that `group_by` and `through` derive."""
        plain = FaustTopic(
            self.app, topics=self.topics, schema=TopicSchema(self.definition), partitions=self.partitions
        )
        return plain.derive_topic(**options)


def _in_seconds(timestamp: Instant | float | None) -> float | None:
    when = in_milliseconds(timestamp)
    return None if when is None else when / 1000

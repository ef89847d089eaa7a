"""A topic that services and agents share: one name, one type, one way to write keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import faust
from faust.exceptions import KeyDecodeError, ValueDecodeError
from faust.topics import Topic as FaustTopic

from tidegate.engine.processing.context import ORIGIN_HEADER, STAMP_HEADER
from tidegate.errors import DecodeError
from tidegate.functions.topics import TopicDefinition
from tidegate.keys import decode_key, encode_key
from tidegate.logs.base import Headers
from tidegate.time.clock import Instant, to_instant

if TYPE_CHECKING:
    from tidegate.app import App

__all__ = ("Topic", "TopicSchema", "in_milliseconds", "plain_headers")

_OURS = frozenset({STAMP_HEADER, ORIGIN_HEADER})


class TopicSchema(faust.Schema[Any, Any]):
    """Reads and writes keys and values for agents as services do.

    A topic without a type is Faust's matter: a `faust.Record` comes back as what it was. Bytes are written as they are,
    so that agents can forward what they do not look into."""

    def __init__(self, definition: TopicDefinition) -> None:
        self._codec, self._key_type = definition.codec, definition.key_type
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
        if message.value is None:
            return None
        if not self._typed:
            return super().loads_value(app, message, loads=loads, serializer=serializer)
        try:
            return self._codec.decode(message.value)
        except DecodeError as error:
            raise ValueDecodeError(str(error)) from error

    def dumps_key(self, app: Any, key: Any, *, serializer: Any = None, headers: Any = None) -> tuple[Any, Any]:
        return encode_key(key), headers

    def dumps_value(self, app: Any, value: Any, *, serializer: Any = None, headers: Any = None) -> tuple[Any, Any]:
        if value is None or isinstance(value, bytes):
            return value, headers
        if serializer or not self._typed:
            return super().dumps_value(app, value, serializer=serializer, headers=headers)
        return self._codec.encode(value), headers


class Topic(FaustTopic):
    """A topic of an app. Services read and write it by its `definition`; to Faust it is a Faust topic."""

    app: App

    def __init__(self, app: Any, *, definition: TopicDefinition, **options: Any) -> None:
        self.definition = definition
        super().__init__(app, **options)

    @property
    def name(self) -> str:
        return self.definition.name

    async def send(  # type: ignore[override]
        self,
        *,
        value: Any,
        key: Any = None,
        timestamp: Instant | float | None = None,
        headers: Headers | Mapping[str, bytes] = (),
        **faust_options: Any,
    ) -> Any:
        """Append one value, from outside of a service: a timer, a web view, an agent. See `App.send`."""
        return await self.app.send(self, key, value, timestamp=timestamp, headers=headers, **faust_options)

    async def send_many(
        self, values: Iterable[Any], *, timestamp: Instant | None = None, headers: Headers = ()
    ) -> Mapping[int, int]:
        """Append values in one transaction. See `App.send_many`."""
        return await self.app.send_many(self, values, timestamp=timestamp, headers=headers)

    async def declare(self) -> None:
        """Create it, as a worker does when it starts."""
        await self.app.declare_topics()

    # -- for Faust ---------------------------------------------------------------------------------------------------
    async def send_by_faust(self, **options: Any) -> Any:
        """Through Faust's producer: as in any Faust app, what is returned can be awaited until the record is there."""
        return await super().send(**options)

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


def plain_headers(headers: Headers | Mapping[str, bytes] | None) -> Headers:
    """Without those that name a task as the sender: an agent that passes a record on is not that task."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return tuple(cast("tuple[str, bytes]", tuple(pair)) for pair in pairs if pair[0] not in _OURS)


def in_milliseconds(timestamp: Instant | float | None) -> int | None:
    """Faust's times are seconds, and floats; ours are milliseconds, and whole."""
    if timestamp is None:
        return None
    return round(timestamp * 1000) if isinstance(timestamp, float) else to_instant(timestamp)


def _in_seconds(timestamp: Instant | float | None) -> float | None:
    when = in_milliseconds(timestamp)
    return None if when is None else when / 1000

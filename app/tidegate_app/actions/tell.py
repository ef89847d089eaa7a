"""`tidegate tell` and `tidegate ask`: send one message to an actor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.client.remote_actors import connect_actors
from tidegate.errors import UnknownMessageError, UnknownNameError, UsageError
from tidegate.functions.messages import MessageDefinition, OutgoingMessage, Posted
from tidegate.host.app_definition import AppDefinition
from tidegate.query.json_values import parse_key

__all__ = ("ActorCommand",)


class ActorCommand:
    """Sends messages to one actor of a service."""

    def __init__(self, definition: AppDefinition, flags: Mapping[str, Any], service: str, key: str) -> None:
        services = {known.name: known for known in definition.services}
        if service not in services:
            raise UnknownNameError("service", service, services)
        self._definition, self._flags, self._service = definition, flags, services[service]
        self._key = parse_key(key, self._service.key_type)

    def read(self, content: str, message: str | None) -> tuple[MessageDefinition, Any]:
        """Decode a message from JSON. Its type is optional if the service handles only one."""
        known = self._service.messages
        if message is None and len(known) > 1:
            names = ", ".join(known)
            raise UsageError(f"service {self._service.name!r} handles: {names}. Choose one with --message NAME.")
        if not known:
            name = self._service.name
            raise UsageError(f"service {name!r} handles no messages: @{name}.on(MessageType) adds a handler")
        definition = next(iter(known.values())) if message is None else known.get(message)
        if definition is None:
            raise UnknownMessageError(self._service.name, message or "", known)
        return definition, definition.codec.decode(content.encode())

    async def tell(self, content: str, message: str | None, idempotency_key: str | None) -> Posted:
        _, value = self.read(content, message)
        async with connect_actors(self._definition, self._flags) as actors:
            return await actors.tell(OutgoingMessage(self._service.name, self._key, value, idempotency_key))

    async def ask(self, content: str, message: str | None, idempotency_key: str | None, timeout: float) -> str:
        """The reply, as JSON."""
        definition, value = self.read(content, message)
        async with connect_actors(self._definition, self._flags) as actors:
            outgoing = OutgoingMessage(self._service.name, self._key, value, idempotency_key)
            answered = await actors.ask(outgoing, timeout=timeout)
        return "null" if answered.value is None else definition.reply.encode(answered.value).decode()

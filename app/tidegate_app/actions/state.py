"""`tidegate state`: committed state as JSON, from the running worker, or from restored stores while none runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from tidegate.client.log_access import LogAccess
from tidegate.engine.keyed_state.timers import DOMAINS
from tidegate.errors import UnknownNameError, UsageError
from tidegate.functions.definition import ServiceDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.owner_rpc.operations import Operations
from tidegate.owner_rpc.protocol import Entries, Items, Timers
from tidegate.query.json_values import StateValues, json_key, parse_key
from tidegate.query.pages import Page, PageEntry
from tidegate.state.declaration import StateDeclaration
from tidegate.state.layout import unpack_due

__all__ = ("StateCommand",)

PAGE: Final = 500
_DOMAIN_NAMES: Final = {number: name for name, number in DOMAINS.items()}


class StateCommand:
    """Queries the state of one service."""

    def __init__(self, definition: AppDefinition, flags: Mapping[str, Any], service: str) -> None:
        services = {known.name: known for known in definition.services}
        if service not in services:
            raise UnknownNameError("service", service, services)
        self._service: ServiceDefinition = services[service]
        self._access = LogAccess(definition, flags)

    def declaration(self, state: str) -> StateDeclaration:
        known = self._service.states
        if state not in known:
            raise UnknownNameError("state", state, known, of=f"of service {self._service.name!r}")
        return known[state]

    async def get(self, state: str, key: str | None) -> tuple[bool, Any]:
        """Whether the key has a value, and the value."""
        declaration = self.declaration(state)
        if declaration.kind == "operator":
            if key is not None:
                raise UsageError(f"state {state!r} is an operator state: it belongs to tasks, so leave out the key")
            return True, [line async for line in self._items(declaration)]
        if key is None:
            raise UsageError(f"state {state!r} needs a key; 'tidegate state list' shows all keys")
        raw = parse_key(key, self._service.key_type)
        async for _, value in self._values(declaration, Entries(self._service.name, state, key=raw, limit=PAGE)):
            return True, value
        return False, None

    async def list(self, state: str, prefix: str) -> AsyncIterator[dict[str, Any]]:
        """All keys that begin with `prefix`, in order, with their values."""
        declaration = self.declaration(state)
        if declaration.kind == "operator":
            async for line in self._items(declaration):
                yield line
            return
        request = Entries(self._service.name, state, prefix=prefix.encode(), limit=PAGE)
        async for key, value in self._values(declaration, request):
            yield {"key": json_key(key, self._service.key_type), "value": value}

    async def timers(self, key: str | None) -> AsyncIterator[dict[str, Any]]:
        raw = None if key is None else parse_key(key, self._service.key_type)
        request = Timers(self._service.name, key=raw, limit=PAGE)
        async for entry in self._entries(request, lambda operations: operations.timers(request)):
            domain, at = unpack_due(entry.value)
            shown = json_key(entry.key, self._service.key_type)
            yield {"key": shown, "name": entry.sub.decode(), "at": at, "time": _DOMAIN_NAMES[domain]}

    # -- parts -------------------------------------------------------------------------------------------------------
    async def _values(self, declaration: StateDeclaration, request: Entries) -> AsyncIterator[tuple[bytes, Any]]:
        """The value per key. The entries of a key are adjacent, but may span several pages."""
        values = StateValues(declaration)
        collected: list[PageEntry] = []
        async for entry in self._entries(request, lambda operations: operations.entries(request)):
            if collected and collected[0].key != entry.key:
                yield collected[0].key, values.of(collected)
                collected = []
            collected.append(entry)
        if collected:
            yield collected[0].key, values.of(collected)

    async def _entries(self, request: Entries | Timers, ask: Callable[[Operations], Any]) -> AsyncIterator[PageEntry]:
        if not self._access.exists:
            return
        async with self._access.opened() as operations:
            while True:
                page: Page = (await ask(operations)).page
                for entry in page.entries:
                    yield entry
                if page.after is None:
                    return
                request.after = page.after

    async def _items(self, declaration: StateDeclaration) -> AsyncIterator[dict[str, Any]]:
        if not self._access.exists:
            return
        values = StateValues(declaration)
        async with self._access.opened() as operations:
            found = await operations.items(Items(self._service.name, declaration.name))
        for task, raw in found.items:
            yield {"task": task, "value": [] if raw is None else values.value(raw)}

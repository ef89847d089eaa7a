"""JSON schemas of the declared types of topics, states and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, get_origin

import msgspec

__all__ = ("Schemas", "type_name")

_REFERENCES: Final = "#/components/schemas/"


def type_name(type_: Any) -> str:
    """The display name of a type."""
    if type_ is Any:
        return "any"
    if isinstance(type_, type) and get_origin(type_) is None:
        return type_.__qualname__.rpartition("<locals>.")[2]
    return re.sub(r"[A-Za-z_]\w*\.", "", str(type_).replace("<locals>.", ""))


class Schemas:
    """The schemas of several types, and their shared components."""

    def __init__(self, types: Iterable[Any]) -> None:
        self.components: dict[str, Any] = {}
        self._schemas: dict[int, tuple[Any, dict[str, Any]]] = {}
        for type_ in types:
            self._schemas.setdefault(id(type_), (type_, self._make(type_)))

    def of(self, type_: Any) -> dict[str, Any]:
        """The schema of a type; the empty schema, which accepts anything, if none can be derived."""
        found = self._schemas.get(id(type_))
        return {} if found is None else found[1]

    def _make(self, type_: Any) -> dict[str, Any]:
        if type_ is Any or type_ is bytes:
            return {}
        for make in (_by_msgspec, _by_pydantic):
            try:
                schema, components = make(type_)
            except Exception:  # noqa: S112  neither library supports all types; any JSON is then allowed
                continue
            self.components |= components
            return schema
        return {}


def _by_msgspec(type_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    (schema,), components = msgspec.json.schema_components([type_], ref_template=_REFERENCES + "{name}")
    return schema, components


def _by_pydantic(type_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    from pydantic import TypeAdapter

    schema = TypeAdapter(type_).json_schema(ref_template=_REFERENCES + "{model}")
    return schema, schema.pop("$defs", {})

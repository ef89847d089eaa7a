"""Compares two schemas: whether values of the old one are compatible with the new one, and what has changed.

None is never stored as a value or as a map's entry, so `int` and `int | None` are equal there.
Compatible: a field with a default was added; a required field got a default; a type was widened (`int` to `float` or
`int | None`, a new member of an enumeration, anything to `Any`); a limit was removed.
Everything else needs a migration, above all a removed field, whose values would be lost silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidegate.state.schema import StateSchema

__all__ = ("differences", "value_changes")

Schema = dict[str, Any]
_WITHOUT_NONE: Final = ("value", "map")
_STRUCTURE: Final = frozenset(
    {"type", "properties", "required", "items", "prefixItems", "additionalProperties", "enum", "anyOf", "$defs", "$ref",
     "minItems", "maxItems", "oneOf", "const"}
)  # fmt: skip


def differences(old: StateSchema, new: StateSchema) -> list[str]:
    """Descriptions of the changes that no migration of values can handle."""
    if old.kind != new.kind:
        return [f"it was a {old.kind} state and is now a {new.kind} state"]
    if old.key_type != new.key_type and old.key_type is not None and new.key_type is not None:
        return [f"its keys, {change}" for change in _type_changes(old.key_type, new.key_type)]
    return []


def value_changes(old: StateSchema, new: StateSchema) -> list[str]:
    """Descriptions of the incompatible changes of the value type. Empty: old values are readable."""
    if new.kind in _WITHOUT_NONE:
        return _type_changes(_without_none(old.type), _without_none(new.type))
    return _type_changes(old.type, new.type)


def _type_changes(old: Schema, new: Schema) -> list[str]:
    return list(_Comparison(old.get("$defs", {}), new.get("$defs", {})).compare(old, new, ""))


def _without_none(schema: Schema) -> Schema:
    """Removes None from the outermost type only: inside a value, None is stored."""
    left = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    if not left:
        return schema
    rest = {name: part for name, part in schema.items() if name != "anyOf"}
    return {**rest, **left[0]} if len(left) == 1 else {**rest, "anyOf": left}


class _Comparison:
    def __init__(self, old: dict[str, Schema], new: dict[str, Schema]) -> None:
        self._old, self._new = old, new
        self._met: set[tuple[str, str]] = set()
        """Pairs of references that were followed: types may be recursive."""

    def compare(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        pair = (old.get("$ref", ""), new.get("$ref", ""))
        if all(pair):
            if pair in self._met:
                return
            self._met.add(pair)
        old, new = _resolved(old, self._old), _resolved(new, self._new)
        if not new or (old == new and "$ref" not in str(old)):
            return
        befores, afters = _variants(old), _variants(new)
        if len(befores) > 1 or len(afters) > 1:
            yield from self._compare_variants(befores, afters, path)
        else:
            yield from self._compare_one(old, new, path)

    def _compare_variants(self, befores: list[Schema], afters: list[Schema], path: str) -> Iterator[str]:
        """Each old variant must be readable as one of the new variants."""
        for before in befores:
            tries = [list(self._again().compare(before, after, path)) for after in afters]
            if all(tries):
                alike = [found for after, found in zip(afters, tries, strict=True) if self._alike(before, after)]
                yield from min(alike, key=len) if alike else (f"{_at(path)}no longer takes {self._name(before)}",)

    def _again(self) -> _Comparison:
        """Each attempt has its own set of followed references."""
        other = _Comparison(self._old, self._new)
        other._met = set(self._met)
        return other

    def _alike(self, old: Schema, new: Schema) -> bool:
        return bool(_resolved(old, self._old).get("type") == _resolved(new, self._new).get("type") == "object")

    def _compare_one(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        was, now = old.get("type"), new.get("type")
        if "enum" in old or "enum" in new:
            yield from self._compare_enums(old, new, path)
        elif was != now and (was, now) != ("integer", "number"):
            yield f"{_at(path)}was {self._name(old)} and is now {self._name(new)}"
            return
        elif now == "object":
            yield from self._compare_objects(old, new, path)
        elif now == "array":
            yield from self._compare_arrays(old, new, path)
        for limit in sorted(new.keys() - _STRUCTURE):
            if old.get(limit) != new[limit]:
                yield f"{_at(path)}has another {limit}: {old.get(limit, 'none')} became {new[limit]}"

    def _compare_enums(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        if "enum" not in new:
            kinds = {_kind_of(item) for item in old["enum"]}
            if kinds != {new.get("type")}:
                yield f"{_at(path)}was {self._name(old)} and is now {self._name(new)}"
        elif "enum" not in old:
            yield f"{_at(path)}was {self._name(old)} and is now {self._name(new)}"
        else:
            gone = [item for item in old["enum"] if item not in new["enum"]]
            if gone:
                yield f"{_at(path)}no longer takes {', '.join(map(repr, gone))}"

    def _compare_objects(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        if ("properties" in old) != ("properties" in new):
            yield f"{_at(path)}was {self._name(old)} and is now {self._name(new)}"
            return
        before, after = old.get("properties", {}), new.get("properties", {})
        for name, schema in before.items():
            where = f"{path}.{name}" if path else name
            if name not in after:
                yield f"field {where!r} is gone"
                continue
            if name in new.get("required", ()) and name not in old.get("required", ()):
                yield f"field {where!r} no longer has a default"
            yield from self.compare(schema, after[name], where)
        for name in after:
            if name not in before and name in new.get("required", ()):
                where = f"{path}.{name}" if path else name
                yield f"field {where!r} was added without a default"
        values = old.get("additionalProperties"), new.get("additionalProperties")
        if isinstance(values[0], dict) and isinstance(values[1], dict):
            yield from self.compare(values[0], values[1], f"{path}[…]")

    def _compare_arrays(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        before, after = old.get("prefixItems", []), new.get("prefixItems", [])
        if bool(before) != bool(after):
            yield f"{_at(path)}was {self._name(old)} and is now {self._name(new)}"
            return
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from self.compare(one, other, f"{path}[{index}]")
        if len(after) < len(before) or new.get("minItems", 0) > max(old.get("minItems", 0), len(before)):
            yield f"{_at(path)}has another number of items"
        items = old.get("items"), new.get("items")
        if isinstance(items[0], dict) and isinstance(items[1], dict):
            yield from self.compare(items[0], items[1], f"{path}[…]")

    def _name(self, schema: Schema) -> str:
        """For messages."""
        if "$ref" in schema:
            return str(schema["$ref"].rpartition("/")[2])
        if "anyOf" in schema:
            return " | ".join(map(self._name, schema["anyOf"]))
        if "enum" in schema:
            return f"one of {', '.join(map(repr, schema['enum']))}"
        if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
            return f"a list of {self._name(schema['items'])}"
        if schema.get("type") == "object":
            return "an object with fields" if "properties" in schema else "a dict"
        names = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
        kind = str(schema.get("type", "anything"))
        return f"{names.get(kind, kind)} ({schema['format']})" if "format" in schema else names.get(kind, kind)


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    return schema


def _variants(schema: Schema) -> list[Schema]:
    return list(schema.get("anyOf") or schema.get("oneOf") or [schema])


def _kind_of(item: Any) -> str:
    return {str: "string", int: "integer", bool: "boolean", float: "number"}.get(type(item), "null")


def _at(path: str) -> str:
    return f"field {path!r} " if path else "its value "

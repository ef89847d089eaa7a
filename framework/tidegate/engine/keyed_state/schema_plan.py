"""Plans the migration of a service's recorded state to the declarations of its code.

Used when a task opens and when a savepoint is restored. One error names all incompatible states and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tidegate.codecs import Codec, codec_for
from tidegate.errors import DroppedStateError, SchemaError
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.migrations import Migration
from tidegate.state.compatibility import differences, value_changes
from tidegate.state.declaration import StateDeclaration
from tidegate.state.layout import EXPIRY, keyed_prefix, operator_prefix
from tidegate.state.map_keys import MapKeys, map_keys
from tidegate.state.schema import StateSchema, schema_of

__all__ = ("Drop", "Rekey", "Rewrite", "SchemaPlan", "plan_schemas", "prefixes_of")

Convert = Callable[[bytes, int], bytes | None]
"""From a stored value, and the expiry that a new time to live gives it, to the new value; None removes it."""


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A step that converts all stored values of a state."""

    state: str
    old: StateSchema
    new: StateSchema
    declaration: StateDeclaration
    convert: Convert


@dataclass(frozen=True, kw_only=True)
class Rekey:
    """A step that moves the entries of a map whose keys have an older layout. The first byte of a key tells its layout,
    so the step can start again after a crash."""

    state: str
    new: StateSchema
    keys: MapKeys


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A step that removes the values of a state that the code no longer has."""

    state: str
    old: StateSchema


@dataclass(frozen=True, kw_only=True)
class SchemaPlan:
    adopted: dict[str, StateSchema]
    """The schemas to record: of new states, and of states whose values are readable as they are."""
    steps: list[Rewrite | Rekey | Drop]


def plan_schemas(
    service: ServiceDefinition,
    recorded: Mapping[str, StateSchema],
    has_values: Callable[[str], bool],
    *,
    allow_dropped: bool,
) -> SchemaPlan:
    """`has_values`: whether the store has values of a recorded state. SchemaError names all incompatible changes;
    DroppedStateError names the states with values that are no longer declared."""
    problems: list[str] = []
    adopted: dict[str, StateSchema] = {}
    steps: list[Rewrite | Rekey | Drop] = []
    for name, declaration in service.states.items():
        new, old = schema_of(declaration), recorded.get(name)
        if old is None:
            adopted[name] = new
        elif old != new:
            needed = _SchemaChange(service, declaration, old, new).steps(problems)
            steps += needed
            if not needed:
                adopted[name] = new
    if problems:
        raise SchemaError(service.name, problems)
    dropped = [name for name in recorded if name not in service.states]
    lost = {name: _new_names(name, recorded, adopted) for name in dropped if has_values(name)}
    if lost and not allow_dropped:
        raise DroppedStateError(service.name, lost)
    steps += [Drop(state=name, old=recorded[name]) for name in dropped]
    return SchemaPlan(adopted=adopted, steps=steps)


def prefixes_of(state: str, kind: str) -> list[bytes]:
    """The prefixes of its store keys; the first is that of its values."""
    if kind == "operator":
        return [operator_prefix(state)]
    return [keyed_prefix(state), *((keyed_prefix(f"{state}.bounds"),) if kind == "list" else ())]


def _new_names(dropped: str, recorded: Mapping[str, StateSchema], new: Mapping[str, StateSchema]) -> list[str]:
    """The new states with a compatible schema: the dropped state may have been renamed to one of them."""
    old = recorded[dropped]
    compatible = (name for name, schema in new.items() if name not in recorded and not differences(old, schema))
    return [name for name in compatible if not value_changes(old, new[name])]


class _SchemaChange:
    """A state whose declared schema differs from the recorded one."""

    def __init__(
        self, service: ServiceDefinition, declaration: StateDeclaration, old: StateSchema, new: StateSchema
    ) -> None:
        self._service, self._declaration, self._old, self._new = service, declaration, old, new
        self._name = declaration.name

    def steps(self, problems: list[str]) -> list[Rewrite | Rekey]:
        """None, unless there are problems: values are readable as they are. Values are converted before entries are
        moved, since a conversion that a crash has interrupted continues from a store key."""
        old, new = self._old, self._new
        if old.migrating is not None and replace(old.migrating.to, key_type=old.key_type) != self._in_place:
            self._add_problem(
                problems,
                f"its migration to version {old.migrating.to.version} is not finished: deploy that version first",
            )
            return []
        if old.version > new.version:
            self._add_problem(problems, f"version {old.version} wrote it, and this code has version {new.version}")
            return []
        if fatal := differences(old, new):
            problems += [f"state {self._name!r}: {change}. Give the new state another name" for change in fatal]
            return []
        chain = [self._migration(version) for version in range(old.version, new.version)]
        if not any(chain) and (changes := value_changes(old, new)):
            self._explain(problems, changes)
            return []
        steps: list[Rewrite | Rekey] = []
        if any(chain):
            steps.append(self._rewrite(self._complete(chain, problems)))
        elif old.ttl != new.ttl:
            steps.append(self._rewrite([]))
        if old.layout != new.layout or (old.key_type != new.key_type and new.layout):
            steps.append(Rekey(state=self._name, new=new, keys=map_keys(self._declaration.key_type)))
        return steps

    @property
    def _in_place(self) -> StateSchema:
        """The schema after a conversion of the values, and before entries are moved."""
        return replace(self._new, layout=self._old.layout, key_type=self._old.key_type)

    def _migration(self, version: int) -> Migration | None:
        return self._service.migrations.get((self._name, version))

    def _complete(self, chain: Iterable[Migration | None], problems: list[str]) -> list[Migration]:
        migrations = []
        for version, migration in enumerate(chain, self._old.version):
            if migration is None:
                self._add_problem(problems, f"there is no migration from version {version}")
            else:
                migrations.append(migration)
        return migrations

    def _add_problem(self, problems: list[str], problem: str) -> None:
        problems.append(f"state {self._name!r}: {problem}")

    def _explain(self, problems: list[str], changes: list[str]) -> None:
        version = self._old.version
        declare = "" if self._new.version > version else f"declare it with Version({version + 1}), and "
        problems += [
            f"state {self._name!r}: {change}; {declare}write a migration of the old values: "
            f"@{self._service.name}.migrate({self._name!r}, from_version={version})"
            for change in changes
        ]

    def _rewrite(self, chain: list[Migration]) -> Rewrite:
        convert = _with_expiry(self._old.ttl, self._new.ttl, _converter(chain, self._declaration))
        return Rewrite(
            state=self._name,
            old=replace(self._old, migrating=None),
            new=self._in_place,
            declaration=self._declaration,
            convert=convert,
        )


def _converter(chain: list[Migration], declaration: StateDeclaration) -> Callable[[bytes], bytes | None]:
    steps = [(migration.codec(declaration.kind), _step(migration, declaration.kind)) for migration in chain]

    def convert(raw: bytes) -> bytes | None:
        for index, (codec, step) in enumerate(steps):
            value = step(codec.decode(raw))
            if value is None:
                return None
            last = index == len(steps) - 1
            raw = (declaration.codec if last else _codec_of(value)).encode(value)
        return raw

    return convert


def _codec_of(value: Any) -> Codec[Any]:
    return codec_for(type(value))


def _step(migration: Migration, kind: str) -> Callable[[Any], Any]:
    """The items of an operator state are migrated one by one."""
    if kind != "operator":
        return migration.function
    return lambda items: [new for new in map(migration.function, items) if new is not None]


def _with_expiry(old_ttl: bool, new_ttl: bool, convert: Callable[[bytes], bytes | None]) -> Convert:
    """Keeps, adds or removes the expiry before each value."""

    def convert_with_expiry(raw: bytes, expires: int) -> bytes | None:
        expiry = raw[: EXPIRY.size] if old_ttl else EXPIRY.pack(expires)
        new = convert(raw[EXPIRY.size :] if old_ttl else raw)
        return new if new is None or not new_ttl else expiry + new

    return convert_with_expiry

"""What must become of a service's recorded state before its code can work with it: decided, not done, here.

Used when a task opens and when a savepoint is restored. All that is wrong is found at once, so that one error names
every state and every change.
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

__all__ = ("Drop", "Evolution", "Rekey", "Rewrite", "evolution_of", "prefixes_of")

Convert = Callable[[bytes, int], bytes | None]
"""From a stored value, and when it would expire if it now began to live, to the new one; None: it is no more."""


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """Every stored value of a state is to be converted."""

    state: str
    old: StateSchema
    new: StateSchema
    declaration: StateDeclaration
    convert: Convert


@dataclass(frozen=True, kw_only=True)
class Rekey:
    """Entries of a map whose own keys were written in an older layout are to be moved. The key shows whether an entry
    was moved already, so this can begin again after a crash."""

    state: str
    new: StateSchema
    keys: MapKeys


@dataclass(frozen=True, kw_only=True)
class Drop:
    """The values of a state that the code no longer has are to be removed."""

    state: str
    old: StateSchema


@dataclass(frozen=True, kw_only=True)
class Evolution:
    adopted: dict[str, StateSchema]
    """To be recorded: states that are new, or whose values the code can read as they are."""
    work: list[Rewrite | Rekey | Drop]


def evolution_of(
    service: ServiceDefinition,
    recorded: Mapping[str, StateSchema],
    holds: Callable[[str], bool],
    *,
    allow_dropped: bool,
) -> Evolution:
    """`holds`: whether there are values of a state. SchemaError names all that cannot be; DroppedStateError names
    states that hold values and are declared no more."""
    problems: list[str] = []
    adopted: dict[str, StateSchema] = {}
    work: list[Rewrite | Rekey | Drop] = []
    for name, declaration in service.states.items():
        new, old = schema_of(declaration), recorded.get(name)
        if old is None:
            adopted[name] = new
        elif old != new:
            found = _Change(service, declaration, old, new).decide(problems)
            work += found
            if not found:
                adopted[name] = new
    if problems:
        raise SchemaError(service.name, problems)
    gone = [name for name in recorded if name not in service.states]
    if any(map(holds, gone)) and not allow_dropped:
        raise DroppedStateError(service.name, {name: _renamed(name, recorded, adopted) for name in gone if holds(name)})
    work += [Drop(state=name, old=recorded[name]) for name in gone]
    return Evolution(adopted=adopted, work=work)


def prefixes_of(state: str, kind: str) -> list[bytes]:
    """Where its entries are in a store; the first is that of its values."""
    if kind == "operator":
        return [operator_prefix(state)]
    return [keyed_prefix(state), *((keyed_prefix(f"{state}.bounds"),) if kind == "list" else ())]


def _renamed(gone: str, recorded: Mapping[str, StateSchema], new: Mapping[str, StateSchema]) -> list[str]:
    """New states that could be this one under another name."""
    old = recorded[gone]
    alike = (name for name, schema in new.items() if name not in recorded and not differences(old, schema))
    return [name for name in alike if not value_changes(old, new[name])]


class _Change:
    """One state whose schema is not the recorded one."""

    def __init__(
        self, service: ServiceDefinition, declaration: StateDeclaration, old: StateSchema, new: StateSchema
    ) -> None:
        self._service, self._declaration, self._old, self._new = service, declaration, old, new
        self._name = declaration.name

    def decide(self, problems: list[str]) -> list[Rewrite | Rekey]:
        """Empty: values can be read as they are, unless there are problems. Values are converted before entries are
        moved: a conversion goes on from a place in the store after a crash."""
        old, new = self._old, self._new
        if old.migrating is not None and replace(old.migrating.to, key_type=old.key_type) != self._in_place:
            self._refuse(problems, f"its migration to version {old.migrating.to.version} was begun and not finished")
            return []
        if old.version > new.version:
            self._refuse(problems, f"version {old.version} wrote it, and this code has version {new.version}")
            return []
        if fatal := differences(old, new):
            problems += [f"state {self._name!r}: {change}. Give the new one another name" for change in fatal]
            return []
        chain = [self._migration(version) for version in range(old.version, new.version)]
        if not any(chain) and (changes := value_changes(old, new)):
            self._explain(problems, changes)
            return []
        work: list[Rewrite | Rekey] = []
        if any(chain):
            work.append(self._rewrite(self._complete(chain, problems)))
        elif old.ttl != new.ttl:
            work.append(self._rewrite([]))
        if old.layout != new.layout or (old.key_type != new.key_type and new.layout):
            work.append(Rekey(state=self._name, new=new, keys=map_keys(self._declaration.key_type)))
        return work

    @property
    def _in_place(self) -> StateSchema:
        """What a conversion of the values alone makes of it."""
        return replace(self._new, layout=self._old.layout, key_type=self._old.key_type)

    def _migration(self, version: int) -> Migration | None:
        return self._service.migrations.get((self._name, version))

    def _complete(self, chain: Iterable[Migration | None], problems: list[str]) -> list[Migration]:
        found = []
        for version, migration in enumerate(chain, self._old.version):
            if migration is None:
                self._refuse(problems, f"there is no migration from version {version}")
            else:
                found.append(migration)
        return found

    def _refuse(self, problems: list[str], what: str) -> None:
        problems.append(f"state {self._name!r}: {what}")

    def _explain(self, problems: list[str], changes: list[str]) -> None:
        version = self._old.version
        declared = "" if self._new.version > version else f"declare it with Version({version + 1}), and "
        problems += [
            f"state {self._name!r}: {change}; {declared}say how old values become new ones: "
            f"@{self._service.name}.migrate({self._name!r}, from_version={version})"
            for change in changes
        ]

    def _rewrite(self, chain: list[Migration]) -> Rewrite:
        convert = _expiring(self._old.ttl, self._new.ttl, _converter(chain, self._declaration))
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
    """An operator state's items are migrated one by one."""
    if kind != "operator":
        return migration.function
    return lambda items: [new for new in map(migration.function, items) if new is not None]


def _expiring(was: bool, now: bool, convert: Callable[[bytes], bytes | None]) -> Convert:
    def with_expiry(raw: bytes, expires: int) -> bytes | None:
        head = raw[: EXPIRY.size] if was else EXPIRY.pack(expires)
        new = convert(raw[EXPIRY.size :] if was else raw)
        return new if new is None or not now else head + new

    return with_expiry

"""Stored state does not fit the code, or the local store failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tidegate.errors.base import TidegateError

__all__ = (
    "DroppedStateError",
    "MigrationError",
    "SchemaError",
    "StateError",
    "StoreCorruptError",
    "StoreError",
)


class StateError(TidegateError):
    """Stored state does not fit the code. It was not changed, and the worker does not start."""


class SchemaError(StateError):
    def __init__(self, service: str, problems: Iterable[str]) -> None:
        self.service, self.problems = service, tuple(problems)
        listed = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"the code of service {service!r} does not fit its stored state:{listed}")


class DroppedStateError(StateError):
    def __init__(self, service: str, states: Mapping[str, Iterable[str]]) -> None:
        """`states`: dropped states, each with the new states that it may have been renamed to. Empty: the service
        itself is no longer declared."""
        self.service, self.states = service, {name: tuple(new) for name, new in states.items()}
        listed = [
            f"{name!r} (was it renamed to {' or '.join(map(repr, new))}? A renamed state starts empty)"
            if new
            else f"{name!r}"
            for name, new in self.states.items()
        ]
        what = f"service {service!r} no longer declares {', '.join(listed)}" if listed else f"there is no {service!r}"
        super().__init__(
            f"{what} in the code, but it has stored state. Declare it again under that name, or delete the stored "
            f"values with --allow-dropped."
        )


class MigrationError(StateError):
    def __init__(self, service: str, state: str, key: bytes, cause: BaseException) -> None:
        self.service, self.state, self.key, self.cause = service, state, key, cause
        super().__init__(
            f"the migration of state {state!r} of service {service!r} failed for key {key[:80]!r}: "
            f"{type(cause).__name__}: {cause}. Values migrated before it are kept. Fix the migration, and restart."
        )


class StoreError(TidegateError):
    """The local store failed."""


class StoreCorruptError(StoreError):
    def __init__(self, directory: Path, detail: str) -> None:
        self.directory, self.detail = directory, detail
        super().__init__(f"the local store in {directory} cannot be read ({detail}); it is rebuilt from its changelog")

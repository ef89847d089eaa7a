"""Everything that can be set, where it is documented, and the one place that reads the environment.

A flag on the command line wins over the environment, which wins over `App(...)`, which wins over the default. Each
setting's environment variable is TIDEGATE_ and its name in capitals.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tidegate.errors import SettingsError

__all__ = ("Resolved", "Settings", "Source", "resolve", "variable")

Source = Literal["flag", "environment", "app", "default"]


def _setting(default: Any, description: str, *, section: str) -> Any:
    return field(default=default, metadata={"description": description, "section": section})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an app runs. None of it changes what its services compute."""

    broker: str = _setting(
        "embedded://",
        "Where the log is: `embedded://` for the durable log inside the worker, under `data`.",
        section="log",
    )
    data: Path = _setting(  # noqa: RUF009  a path cannot change in place
        Path(".tidegate"),
        "The directory for the embedded log and the local stores; each app has its own below it.",
        section="log",
    )
    partitions: int = _setting(4, "How many partitions a topic gets that does not say.", section="log")
    retention_hours: float = _setting(
        168.0,
        "How long topics keep records, unless they say otherwise; 0 keeps them for ever.",
        section="log",
    )
    store: Literal["rocksdb", "memory"] = _setting(
        "rocksdb",
        "Where tasks keep state: `rocksdb` on disk, or `memory`, rebuilt from the changelog at every start.",
        section="state",
    )
    cache_entries: int = _setting(
        200_000,
        "How many decoded values a worker keeps in memory, over all its tasks, besides those being committed.",
        section="state",
    )
    store_memory_mb: int = _setting(
        128, "Memory for RocksDB's caches and write buffers, over all stores of a worker, in MiB.", section="state"
    )
    flush_seconds: float = _setting(
        10.0,
        "How often stores are written to disk, which bounds what a start after a crash must replay.",
        section="state",
    )
    commit_interval: float = _setting(
        0.2, "Seconds between the commits of a task: how long results wait before others see them.", section="engine"
    )
    commit_changes: int = _setting(
        10_000, "A task also commits as soon as it holds this many changes or outputs.", section="engine"
    )
    slice_ms: float = _setting(
        4.0, "How long handlers run before the event loop gets its turn, in ms.", section="engine"
    )
    buffer_records: int = _setting(
        8_000, "How many records a task reads ahead before it stops reading.", section="engine"
    )
    progress_interval: float = _setting(
        1.0,
        "Seconds between a task's messages about event time to the services that read its output.",
        section="engine",
    )
    drain_seconds: float = _setting(
        5.0, "How long a worker that stops waits for handlers that are under way, in seconds.", section="worker"
    )
    metrics: str = _setting(
        "", "HOST:PORT at which the worker answers with Prometheus metrics; empty: nowhere.", section="worker"
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "How much the worker logs: `debug`, `info`, `warning` or `error`.", section="worker"
    )


@dataclass(frozen=True)
class Resolved:
    """The settings that hold, and where each came from."""

    settings: Settings
    sources: Mapping[str, Source]


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"TIDEGATE_{name.upper()}"


def resolve(
    app: Mapping[str, Any], flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Resolved:
    """Find the value of each setting. SettingsError names what is unknown or impossible."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    known = {item.name: item for item in dataclasses.fields(Settings)}
    for name in sorted({*app, *(flags or {})} - set(known)):
        raise SettingsError(f"there is no setting {name!r}; known: {', '.join(known)}")
    for name, item in known.items():
        value, source = _find(name, app, flags or {}, environment)
        sources[name] = source
        values[name] = item.default if source == "default" else _parse(name, value, item.default, source)
    _check(values, sources)
    return Resolved(Settings(**values), sources)


def _find(
    name: str, app: Mapping[str, Any], flags: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[Any, Source]:
    if flags.get(name) is not None:
        return flags[name], "flag"
    if environment.get(variable(name)):
        return environment[variable(name)], "environment"
    if name in app:
        return app[name], "app"
    return None, "default"


_KINDS: Mapping[type, str] = {str: "text", int: "a whole number", float: "a number", Path: "a path"}


def _parse(name: str, value: Any, default: Any, source: Source) -> Any:
    """Turn text into the type of the default."""
    wanted: Any = Path if isinstance(default, Path) else type(default)
    try:
        if isinstance(value, wanted) and not isinstance(value, bool):
            return value
        if isinstance(value, str) or (wanted is float and type(value) is int):
            return wanted(value)
    except ValueError:
        pass
    raise _impossible(name, source, f"must be {_KINDS[wanted]}", value)


def _impossible(name: str, source: Source, what: str, value: Any) -> SettingsError:
    where = {
        "flag": f"the flag --{name.replace('_', '-')}",
        "environment": f"the environment variable {variable(name)}",
        "app": f"App(..., {name}=...)",
        "default": f"the default of {name}",
    }[source]
    return SettingsError(f"{where} {what}, not {str(value)!r}")


_LEAST: Mapping[str, float] = {
    "partitions": 1,
    "commit_changes": 1,
    "buffer_records": 1,
    "cache_entries": 1000,
    "store_memory_mb": 1,
    "retention_hours": 0,
    "drain_seconds": 0,
}
_ABOVE_ZERO = ("commit_interval", "slice_ms", "flush_seconds", "progress_interval")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "store": ("rocksdb", "memory"),
    "log_level": ("debug", "info", "warning", "error"),
}


def _check(values: Mapping[str, Any], sources: Mapping[str, Source]) -> None:
    def refuse(name: str, what: str) -> SettingsError:
        return _impossible(name, sources[name], what, values[name])

    for name, bound in _LEAST.items():
        if not values[name] >= bound:  # not a number is refused, too
            raise refuse(name, f"must be at least {bound:g}")
    for name in _ABOVE_ZERO:
        if not values[name] > 0:
            raise refuse(name, "must be more than 0")
    for name, choices in _CHOICES.items():
        if values[name] not in choices:
            raise refuse(name, f"must be one of {', '.join(choices)}")
    if not values["broker"].startswith("embedded://"):
        raise refuse("broker", "must be embedded:// (the log is under --data) or embedded://DIR")
    host, _, port = values["metrics"].rpartition(":")
    if values["metrics"] and not (host and port.isdecimal() and int(port) < 65536):
        raise refuse("metrics", "must be HOST:PORT, for example 127.0.0.1:9464")

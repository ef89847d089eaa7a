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
    data: Path = _setting(
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
    metrics: str = _setting(
        "", "HOST:PORT at which the worker answers with Prometheus metrics; empty: nowhere.", section="worker"
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
    for name in {*app, *(flags or {})} - set(known):
        raise SettingsError(f"there is no setting {name!r}; known: {', '.join(known)}")
    for name, item in known.items():
        given = (flags or {}).get(name)
        if given is not None:
            values[name], sources[name] = _parse(name, given, item.default), "flag"
        elif environment.get(variable(name)):
            values[name], sources[name] = _parse(name, environment[variable(name)], item.default), "environment"
        elif name in app:
            values[name], sources[name] = _parse(name, app[name], item.default), "app"
        else:
            values[name], sources[name] = item.default, "default"
    _check(values)
    return Resolved(Settings(**values), sources)


def _parse(name: str, value: Any, default: Any) -> Any:
    """Turn text into the type of the default."""
    wanted = Path if isinstance(default, Path) else type(default)
    try:
        if isinstance(value, str) and wanted is not str or wanted in (Path, float):
            return wanted(value)
    except ValueError:
        pass
    else:
        if isinstance(value, wanted):
            return value
    raise SettingsError(f"{name} ({variable(name)}) must be a {wanted.__name__}, not {value!r}")


def _check(values: Mapping[str, Any]) -> None:
    least: dict[str, float] = {"partitions": 1, "commit_changes": 1, "buffer_records": 1, "cache_entries": 1000}
    above_zero = ("commit_interval", "slice_ms", "flush_seconds")
    for name, bound in least.items():
        if values[name] < bound:
            raise SettingsError(f"{name} ({variable(name)}) must be at least {bound:g}, not {values[name]}")
    for name in above_zero:
        if values[name] <= 0:
            raise SettingsError(f"{name} ({variable(name)}) must be more than 0, not {values[name]}")
    if values["store"] not in ("rocksdb", "memory"):
        raise SettingsError(f"store (TIDEGATE_STORE) must be rocksdb or memory, not {values['store']!r}")
    scheme = values["broker"].partition("://")[0]
    if scheme != "embedded":
        raise SettingsError(f"broker (TIDEGATE_BROKER) must be embedded:// or embedded://DIR, not {values['broker']!r}")

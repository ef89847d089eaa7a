"""Resolves and validates the value of each setting. This is the only module that reads the environment.

A command-line flag takes precedence over the environment, then `App(...)`, then the default.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from tidegate.errors import SettingsError
from tidegate.settings import Settings, variable

__all__ = ("Resolved", "Source", "resolve")

Source = Literal["flag", "environment", "app", "default"]

_FIELDS: Final = {item.name: item for item in dataclasses.fields(Settings)}


@dataclass(frozen=True)
class Resolved:
    """The effective settings, and the source of each."""

    settings: Settings
    sources: Mapping[str, Source]
    ignored: tuple[str, ...] = ()
    """A warning for each environment variable that looks like a setting but is none."""


def resolve(
    app: Mapping[str, Any], flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> Resolved:
    """Resolve each setting. SettingsError: a setting is unknown, or its value is invalid."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    for name in sorted({*app, *(flags or {})} - set(_FIELDS)):
        raise SettingsError(f"there is no setting {name!r}; known: {', '.join(_FIELDS)}")
    for name, item in _FIELDS.items():
        value, source = _find(name, app, flags or {}, environment)
        sources[name] = source
        values[name] = item.default if source == "default" else _parse(name, value, item.default, source)
    _check(values, sources)
    return Resolved(Settings(**values), sources, _ignored(environment))


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


_NOT_SETTINGS: Final = re.compile(
    r"TIDEGATE_(APP|ALLOW_ROOT|DEBUG|FAULTS|FAULTS_LOG|SEED|TEST_\w+)=.*"
    # Kubernetes sets these in every pod for services that are called tidegate or tidegate-workers.
    r"|TIDEGATE_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*"
    r"|TIDEGATE_(\w+_)?PORT=\w+://.*",
    re.DOTALL,
)
"""Known variables that are not settings: of the image's entrypoint, the command line, tests, Kubernetes."""


def _ignored(environment: Mapping[str, str]) -> tuple[str, ...]:
    known = [variable(name) for name in _FIELDS]
    given = ((name, value) for name, value in sorted(environment.items()) if name.startswith(variable("")) and value)
    return tuple(
        _no_setting(name, known)
        for name, value in given
        if name not in known and not _NOT_SETTINGS.fullmatch(f"{name}={value}")
    )


def _no_setting(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    advice = f"did you mean {close[0]}?" if close else "'tidegate config' lists all settings."
    return f"the environment variable {name} is not a setting and is ignored: {advice}"


_KINDS: Mapping[type, str] = {str: "text", int: "a whole number", float: "a number", Path: "a path"}


def _parse(name: str, value: Any, default: Any, source: Source) -> Any:
    """Convert text to the type of the default."""
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


_ADDRESSES: Mapping[str, str] = {"metrics": "127.0.0.1:9464", "api": "127.0.0.1:8000", "advertise": "10.0.0.7:8000"}
_ADDRESS = r"([^/,:@\s\[\]]+|\[[0-9A-Fa-f:.]+\]):\d+"
_BROKER = re.compile(rf"embedded://.*|kafka://{_ADDRESS}(,{_ADDRESS})*")


@cache
def _choices() -> Mapping[str, tuple[str, ...]]:
    """The allowed values of each setting; empty: any value of its type."""
    types = get_type_hints(Settings)
    return {name: get_args(type_) if get_origin(type_) is Literal else () for name, type_ in types.items()}


def _check(values: Mapping[str, Any], sources: Mapping[str, Source]) -> None:
    def refuse(name: str, what: str) -> SettingsError:
        return _impossible(name, sources[name], what, values[name])

    for name, item in _FIELDS.items():
        least, above, choices = item.metadata["least"], item.metadata["above"], _choices()[name]
        if least is not None and not values[name] >= least:  # written so that NaN is rejected, too
            raise refuse(name, f"must be at least {least:g}")
        if above is not None and not values[name] > above:
            raise refuse(name, f"must be more than {above:g}")
        if choices and values[name] not in choices:
            raise refuse(name, f"must be one of {', '.join(filter(None, choices))}")
    if not _BROKER.fullmatch(values["broker"]):
        raise refuse("broker", "must be embedded:// (the log is under --data), embedded://DIR or kafka://HOST:PORT")
    for name, example in _ADDRESSES.items():
        host, _, port = values[name].rpartition(":")
        if values[name] not in ("", "off") and not (host and port.isdecimal() and int(port) < 65536):
            raise refuse(name, f"must be HOST:PORT, for example {example}")
    if bool(values["api_tls_cert"]) != bool(values["api_tls_key"]):
        raise SettingsError("HTTPS needs both: a certificate (api_tls_cert) and its key (api_tls_key)")

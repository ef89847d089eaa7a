"""What commands have in common: the app that they are about, and the settings that can be given as flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from tidegate.settings import Settings, variable
from tidegate_app.failures import set_debugging

__all__ = (
    "SETTING_NAMES",
    "app_argument",
    "debug_option",
    "json_option",
    "setting_flags",
    "take_flags",
    "written_flags",
)

F = TypeVar("F", bound=Callable[..., Any])

_LATER = {"api": 1, "kafka": 2}
SETTING_NAMES = tuple(
    item.name for item in sorted(dataclasses.fields(Settings), key=lambda item: _LATER.get(item.metadata["section"], 0))
)
"""Those that matter to everybody come first."""
_METAVARS = {
    "broker": "URL",
    "data": "DIR",
    "metrics": "HOST:PORT",
    "api": "HOST:PORT",
    "advertise": "HOST:PORT",
    "store": "rocksdb|memory",
    "log_level": "LEVEL",
}


def app_argument(function: F) -> F:
    return click.argument("app", metavar="APP")(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def debug_option(function: F) -> F:
    def debug(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            set_debugging()

    return click.option("--debug", is_flag=True, expose_value=False, callback=debug, help="Show tracebacks of errors.")(
        function
    )


def setting_flags(*names: str) -> Callable[[F], F]:
    """A flag for each of these settings, described as in the reference. Secrets have none: others can see it."""

    def decorate(function: F) -> F:
        for name in reversed(names):
            if not _field(name).metadata["secret"]:
                function = _flag(name)(function)
        return debug_option(function)

    return decorate


def _field(name: str) -> dataclasses.Field[Any]:
    return next(item for item in dataclasses.fields(Settings) if item.name == name)


def _flag(name: str) -> Callable[[F], F]:
    item = _field(name)
    shown = item.metadata["description"].replace("`", "")
    if item.metadata["switch"]:
        shown = shown.removeprefix("on: ")
        shown = shown[:1].upper() + shown[1:]
        return click.option(
            f"--{name.replace('_', '-')}", f"set_{name}", flag_value="on", help=f"{shown} [{variable(name)}=on]"
        )
    return click.option(
        f"--{name.replace('_', '-')}",
        f"set_{name}",
        metavar=_METAVARS.get(name, "TEXT" if isinstance(item.default, str) else "N"),
        help=f"{shown} [{variable(name)}; {item.default or 'none'}]",
    )


def written_flags(flags: Mapping[str, Any]) -> list[str]:
    """Settings as they are written on a command line."""
    given = [(name, value) for name, value in flags.items() if value is not None]
    return [
        f"--{name.replace('_', '-')}" + ("" if _field(name).metadata["switch"] else f"={value}")
        for name, value in given
    ]


def take_flags(options: dict[str, Any], names: Iterable[str] = SETTING_NAMES) -> dict[str, Any]:
    """Remove the settings from a command's options, and return them by their names."""
    return {name: options.pop(f"set_{name}") for name in names if f"set_{name}" in options}

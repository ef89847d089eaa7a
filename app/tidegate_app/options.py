"""Options that commands share: the app, and settings as flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import click

from tidegate.settings import Settings, variable
from tidegate_app.error_report import set_debugging
from tidegate_app.reference import SECTIONS

__all__ = (
    "SETTING_NAMES",
    "SettingsCommand",
    "all_setting_flags",
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
"""The settings of the API and of Kafka come last."""
_USUAL_TITLE: Final = "The usual settings"
_USUAL: Final = (
    "broker",
    "data",
    "partitions",
    "processes",
    "api",
    "metrics",
    "log_level",
    "checkpoint_interval",
    "checkpoint_storage",
)
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
    """A flag for each of these settings, with the description of the reference. Secrets have no flag: other users of
    the machine can see command lines."""

    def decorate(function: F) -> F:
        for name in reversed(names):
            if not _field(name).metadata["secret"]:
                function = _flag(name)(function)
        return debug_option(function)

    return decorate


def all_setting_flags(function: F) -> F:
    """A flag for each setting, for a `SettingsCommand`, each described in one line."""
    for name in reversed(SETTING_NAMES):
        if not _field(name).metadata["secret"]:
            function = _brief_flag(name)(function)
    return debug_option(function)


class SettingsCommand(click.Command):
    """A command with flags for all settings, listed by section: its own options, the usual settings, then the rest."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = (SECTIONS[_field(name).metadata["section"]] for name in SETTING_NAMES)
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", _USUAL_TITLE, *sections)}
        for parameter in sorted(self.get_params(ctx), key=_rank):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups[_group(parameter.name or "")].append(record)
        width = max(len(flag) for records in groups.values() for flag, _ in records)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([(flag.ljust(width), text) for flag, text in records], col_max=width)
        with formatter.section("Variables"):
            formatter.write_text(
                f"Each setting has a variable: TIDEGATE_ and its name in capitals, such as "
                f"{variable('commit_interval')}. Secrets can only be set by their variables. 'tidegate config' and "
                f"docs/configuration.md describe each setting."
            )


def _rank(parameter: click.Parameter) -> int:
    """The usual settings in the order of `_USUAL`; the others in the order of their declaration."""
    name = (parameter.name or "").removeprefix("set_")
    return _USUAL.index(name) if name in _USUAL else len(_USUAL)


def _group(parameter: str) -> str:
    name = parameter.removeprefix("set_")
    if name == parameter:
        return "Options"
    section: str = _field(name).metadata["section"]
    return _USUAL_TITLE if name in _USUAL else SECTIONS[section]


def _brief_flag(name: str) -> Callable[[F], F]:
    item = _field(name)
    shown = str(item.default)
    if isinstance(item.default, float):
        shown = f"{item.default:g}"
    help_ = item.metadata["brief"] + (f" [{shown}]" if shown else "")
    return _option(name, item, item.metadata["brief"] if item.metadata["switch"] else help_)


def _field(name: str) -> dataclasses.Field[Any]:
    return next(item for item in dataclasses.fields(Settings) if item.name == name)


def _flag(name: str) -> Callable[[F], F]:
    item = _field(name)
    shown = item.metadata["description"].replace("`", "")
    if item.metadata["switch"]:
        shown = shown.removeprefix("on: ")
        shown = shown[:1].upper() + shown[1:]
        return _option(name, item, f"{shown} [{variable(name)}=on]")
    return _option(name, item, f"{shown} [{variable(name)}; {item.default or 'none'}]")


def _option(name: str, item: dataclasses.Field[Any], text: str) -> Callable[[F], F]:
    flag, parameter = f"--{name.replace('_', '-')}", f"set_{name}"
    if item.metadata["switch"]:
        return click.option(flag, parameter, flag_value="on", help=text)
    metavar = _METAVARS.get(name, "TEXT" if isinstance(item.default, str) else "N")
    return click.option(flag, parameter, metavar=metavar, help=text)


def written_flags(flags: Mapping[str, Any]) -> list[str]:
    """Settings as command line flags."""
    given = [(name, value) for name, value in flags.items() if value is not None]
    return [
        f"--{name.replace('_', '-')}" + ("" if _field(name).metadata["switch"] else f"={value}")
        for name, value in given
    ]


def take_flags(options: dict[str, Any], names: Iterable[str] = SETTING_NAMES) -> dict[str, Any]:
    """Remove the settings from a command's options, and return them by their names."""
    return {name: options.pop(f"set_{name}") for name in names if f"set_{name}" in options}

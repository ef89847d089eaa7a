"""Error reports of commands: what is wrong and what to do, on one screen, and an exit code."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Final

import click

import tidegate
from tidegate.errors import ServiceFailedError, TidegateError

__all__ = ("DEBUG_VARIABLE", "describe", "is_debugging", "is_users", "report", "set_debugging")

DEBUG_VARIABLE: Final = "TIDEGATE_DEBUG"
FRAMES: Final = 6
"""How many of the last frames of a handler's traceback are shown."""


def is_debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def set_debugging() -> None:
    os.environ[DEBUG_VARIABLE] = "1"


def report(error: BaseException) -> None:
    """Print the error to stderr."""
    if is_debugging():
        traceback.print_exception(error, file=sys.stderr)
    label = click.style("Error:", fg="red", bold=True)
    click.echo(f"{label} {describe(error)}", err=True)


def describe(error: BaseException) -> str:
    if isinstance(error, ServiceFailedError):
        return "\n".join([str(error), *_tail(error.cause)])
    if isinstance(error, TidegateError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        hint = " Give this user access to it, or choose another directory (--data DIR)."
        return f"{error.filename}: {error.strerror}.{hint if isinstance(error, PermissionError) else ''}"
    frames = _tail(error)
    return "\n".join([f"{type(error).__name__}: {error}", *frames, "--debug shows the full traceback."])


def _tail(error: BaseException) -> list[str]:
    """The last frames of the traceback: those in the user's code, if there are any."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)]
    lines = traceback.format_list((own or list(frames))[-FRAMES:])
    label = "Traceback (your part of it):" if own else "Traceback (the end of it):"
    return ["", label, *"".join(lines).rstrip().splitlines()] if lines else []


def is_users(filename: str) -> bool:
    """Whether the file is the user's code, not Tidegate's or a library's."""
    path = Path(filename)
    others = {Path(str(tidegate.__file__)).parent, Path(__file__).parent, Path(sysconfig.get_path("stdlib"))}
    return path.suffix == ".py" and "site-packages" not in path.parts and others.isdisjoint(path.parents)

"""How a failed command ends: one screen that says what is wrong and what to do, and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Final

import click

from tidegate.errors import ServiceFailedError, TidegateError

__all__ = ("DEBUG_VARIABLE", "describe", "is_debugging", "report", "set_debugging")

DEBUG_VARIABLE: Final = "TIDEGATE_DEBUG"
FRAMES: Final = 6
"""Of a handler's traceback: the last ones are where it failed."""


def is_debugging() -> bool:
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def set_debugging() -> None:
    os.environ[DEBUG_VARIABLE] = "1"


def report(error: BaseException) -> None:
    """Say on stderr what went wrong."""
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
        return f"{error.filename}: {error.strerror}"
    frames = _tail(error)
    return "\n".join([f"{type(error).__name__}: {error}", *frames, "--debug shows the whole traceback."])


def _tail(error: BaseException) -> list[str]:
    """The end of its traceback, as far as it is the user's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_engine(frame.filename)]
    if not frames:
        return []
    lines = traceback.format_list(frames[-FRAMES:])
    return ["", "Traceback (the handler's part):", *"".join(lines).rstrip().splitlines()]


def _is_engine(filename: str) -> bool:
    import tidegate

    return Path(str(tidegate.__file__)).parent in Path(filename).parents

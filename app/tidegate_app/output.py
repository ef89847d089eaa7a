"""Output of commands: data to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ("note", "print_json", "print_table", "silence_stdout", "stderr_console", "write_lines")

WIDE = 200
"""The width of a table that is not printed to a terminal: enough not to wrap."""


def note(text: str) -> None:
    """Print a remark that is not part of the command's result."""
    click.echo(text, err=True)


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def write_lines(values: Iterable[Any]) -> None:
    """Print each value as a line of JSON, and flush."""
    import orjson

    sys.stdout.buffer.write(b"".join(orjson.dumps(value) + b"\n" for value in values))
    sys.stdout.buffer.flush()


def print_json(value: Any) -> None:
    import orjson

    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_plain, row))
    console.print(table)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def silence_stdout() -> None:
    """After a BrokenPipeError: flushing the remaining buffer at exit must not raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

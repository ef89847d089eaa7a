"""Prints docs/cli.md, from what the commands say about themselves: python -m tidegate_app.manual"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from tidegate_app.cli import cli

__all__ = ("manual",)

_WIDTH: Final = 100
"""Of a line."""

_INTRODUCTION = """\
# The command line

Commands work beside running workers, and also while none runs.

- On the embedded log one worker owns an app's data directory. The other commands find it there, as the same user on the
  same machine: give them the same `--data`, or run them from the same directory.
- On a broker nobody owns anything: give all of them the same `--broker`, from whatever machine. What else a broker
  needs, such as TLS and a login, comes from `TIDEGATE_KAFKA_...` variables or from `App(...)`. Of a broker's topics,
  only those of the app are shown and touched.
- An APP is `package.module:app`, `package.module`, or a file: `hello.py`.
- Data goes to stdout, as JSON lines where that makes sense; everything else goes to stderr.
- Exit codes: 0; 1 for an error, which says what to do; 2 for a wrong command line; 130 for a command that was
  interrupted. A worker and a `tail` end at Ctrl-C as they should, with 0.
- `--debug` or `TIDEGATE_DEBUG=1` shows whole tracebacks.
- Every setting is a flag of `tidegate worker`; [configuration.md](configuration.md) says more about each.

The texts below are those of `--help`. This page is made from them by `make docs`.
"""


def manual() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield from _command(cli, None, "tidegate")


def _command(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(command, parent, name, terminal_width=_WIDTH, **cli.context_settings)
    yield f"## {context.command_path}\n"
    yield f"```text\n{_trimmed(command.get_help(context))}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            if child is not None:
                yield from _command(child, context, each)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


if __name__ == "__main__":
    click.echo(manual(), nl=False)

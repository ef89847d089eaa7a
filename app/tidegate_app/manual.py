"""Generates docs/cli.md from the help texts of the commands: python -m tidegate_app.manual"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from tidegate_app.cli import cli

__all__ = ("manual",)

_WIDTH: Final = 100

_INTRODUCTION = """\
# The command line

Commands work beside running workers, and while no worker runs.

- With the embedded log, one worker owns an app's data directory. Other commands connect to it there, as the same user
  on the same machine: give them the same `--data`, or run them in the same directory.
- With a broker, give all commands the same `--broker`, from any machine. Other settings of the broker, such as TLS and
  the login, come from `TIDEGATE_KAFKA_...` variables or from `App(...)`. Commands show and change only the app's own
  topics.
- An APP is `package.module:app`, `package.module`, or a file: `hello.py`.
- Data goes to stdout, as JSON lines where that makes sense; everything else goes to stderr.
- Exit codes: 0; 1 for an error, whose message says what to do; 2 for an invalid command line; 130 for an interrupted
  command. For a worker and `tail`, Ctrl-C is the normal end, with 0.
- `--debug` or `TIDEGATE_DEBUG=1` shows full tracebacks.
- Every setting is a flag of `tidegate worker`; [configuration.md](configuration.md) describes each.

The texts below are those of `--help`. This page is generated from them by `make docs`.
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

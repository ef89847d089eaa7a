"""tidegate savepoint"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, json_option, setting_flags, take_flags

__all__ = ("command",)

_SETTINGS = ("broker", "data", "checkpoint_storage")
_name = click.argument("name", metavar="NAME|URI")


@click.group("savepoint")
def command() -> None:
    """Take and inspect savepoints of an APP, and start a new run from one.

    A savepoint is a consistent cut through all services: state, timers, positions, and records in flight between them.
    It is kept until it is deleted. A NAME is in the app's checkpoint storage; a URI is a folder anywhere: a path with a
    slash, file://..., s3://.... A number is a periodic checkpoint.
    """


@command.command("create")
@app_argument
@click.argument("name")
@click.option("--stop", is_flag=True, help="Let handlers end, take the savepoint, and stop the workers at it.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S", help="The timeout in seconds.")
@setting_flags(*_SETTINGS)
def create(app: str, name: str, stop: bool, timeout: float | None, **options: Any) -> None:
    """Take a savepoint of a running APP with a NAME.

    \b
    tidegate savepoint create hello.py before-the-upgrade
    tidegate savepoint create hello.py final --stop
    """
    import asyncio

    from tidegate_app.actions.savepoint import Savepoints
    from tidegate_app.app_loader import load_app

    savepoints = Savepoints(load_app(app).define(), take_flags(options))
    asyncio.run(savepoints.create(name, stop=stop, timeout=timeout))


@command.command("list")
@app_argument
@json_option
@setting_flags(*_SETTINGS)
def list_(app: str, as_json: bool, **options: Any) -> None:
    """List the savepoints of an APP, newest first.

    \b
    tidegate savepoint list hello.py
    """
    from tidegate_app.actions.savepoint import Savepoints
    from tidegate_app.app_loader import load_app

    Savepoints(load_app(app).define(), take_flags(options)).list(as_json=as_json)


@command.command("show")
@app_argument
@_name
@json_option
@setting_flags(*_SETTINGS)
def show(app: str, name: str, as_json: bool, **options: Any) -> None:
    """Show the contents of a savepoint: services and their tasks, states, positions, sizes.

    \b
    tidegate savepoint show hello.py before-the-upgrade
    """
    import asyncio

    from tidegate_app.actions.savepoint import Savepoints
    from tidegate_app.app_loader import load_app

    asyncio.run(Savepoints(load_app(app).define(), take_flags(options)).show(name, as_json=as_json))


@command.command("restore")
@app_argument
@_name
@click.option(
    "--partitions",
    multiple=True,
    metavar="N|SERVICE=N",
    help="The number of tasks, of all services or of one; topics are not changed. Default: as in the savepoint.",
)
@click.option("--as", "app_id", metavar="ID", help="Restore as an app with this id; the original app is not changed.")
@click.option(
    "--start",
    multiple=True,
    metavar="TOPIC=WHERE",
    help="Where to read a topic from: earliest, latest, or a time. Required for each input topic on another log.",
)
@click.option("--allow-dropped", is_flag=True, help="Leave out services and states that the code no longer declares.")
@setting_flags(*_SETTINGS)
def restore(
    app: str,
    name: str,
    partitions: tuple[str, ...],
    app_id: str | None,
    start: tuple[str, ...],
    allow_dropped: bool,
    **options: Any,
) -> None:
    """Start a new run of an APP from a savepoint. The next worker continues exactly at its cut.

    No worker may run. The savepoint may come from another machine, log, app id, or parallelism; its state must fit the
    code, or have migrations. The previous run's topics are kept until the next restore.

    \b
    tidegate savepoint restore hello.py before-the-upgrade
    tidegate savepoint restore hello.py final --partitions 8
    tidegate savepoint restore hello.py /backup/final --broker kafka://127.0.0.1:9092 --start names=earliest
    """
    import asyncio

    from tidegate_app.actions.savepoint import Savepoints, restore_options
    from tidegate_app.app_loader import load_app

    wanted = restore_options(partitions, start, allow_dropped=allow_dropped)
    savepoints = Savepoints(load_app(app).define(), take_flags(options))
    asyncio.run(savepoints.restore(name, wanted, app_id=app_id))


@command.command("delete")
@app_argument
@click.argument("name")
@setting_flags(*_SETTINGS)
def delete(app: str, name: str, **options: Any) -> None:
    """Delete a savepoint.

    \b
    tidegate savepoint delete hello.py before-the-upgrade
    """
    from tidegate_app.actions.savepoint import Savepoints
    from tidegate_app.app_loader import load_app

    Savepoints(load_app(app).define(), take_flags(options)).delete(name)


@command.command("diff")
@app_argument
@click.argument("one", metavar="NAME|URI")
@click.argument("other", metavar="NAME|URI")
@click.option("--keys", is_flag=True, help="Print each key that differs, with both values, as JSON lines.")
@json_option
@setting_flags(*_SETTINGS)
def diff(app: str, one: str, other: str, keys: bool, as_json: bool, **options: Any) -> None:
    """Compare two savepoints: how many keys were added, removed and changed, in each state.

    \b
    tidegate savepoint diff hello.py monday tuesday
    tidegate savepoint diff hello.py monday tuesday --keys | head
    """
    import asyncio

    from tidegate_app.actions.savepoint import Savepoints
    from tidegate_app.app_loader import load_app

    savepoints = Savepoints(load_app(app).define(), take_flags(options))
    asyncio.run(savepoints.diff(one, other, keys=keys, as_json=as_json))


@command.command("export")
@app_argument
@_name
@click.option("--to", "target", required=True, metavar="DIR", help="The directory for the files.")
@click.option("--format", "format_", type=click.Choice(["parquet", "jsonl"]), default="parquet", show_default=True)
@click.option("--service", metavar="NAME", help="Only the states of this service.")
@click.option("--state", metavar="NAME", help="Only states of this name.")
@setting_flags(*_SETTINGS)
def export(
    app: str, name: str, target: str, format_: Any, service: str | None, state: str | None, **options: Any
) -> None:
    """Write the state in a savepoint to Parquet files or JSON lines, one file per state.

    Columns: key, subkey (of a map's entry or a list's item), value (of the state's type), expires.

    \b
    tidegate savepoint export hello.py monday --to out
    tidegate savepoint export hello.py monday --to out --format jsonl --service greeter
    """
    import asyncio
    from pathlib import Path

    from tidegate_app.actions.savepoint import Savepoints
    from tidegate_app.app_loader import load_app

    savepoints = Savepoints(load_app(app).define(), take_flags(options))
    asyncio.run(savepoints.export(name, Path(target), format_, service=service, state=state))

"""tidegate replay"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("replay")
@app_argument
@click.argument("service")
@click.argument("key")
@click.option(
    "--from", "savepoint", required=True, metavar="NAME|URI", help="The savepoint or checkpoint to start from."
)
@click.option("--pdb", "debug", is_flag=True, help="Stop in Python's debugger, inside the handler, at each event.")
@setting_flags("broker", "data", "checkpoint_storage")
def command(app: str, service: str, key: str, savepoint: str, debug: bool, **options: Any) -> None:
    """Replay the events of one KEY through the handler of a SERVICE, from a savepoint on.

    Prints each event with the key's state before and after it, and the emitted values. It runs in memory, beside the
    workers, and writes nothing to the log; but a handler's external side effects happen again. Other keys are left out:
    event time advances by the savepoint and this key's events only.

    \b
    tidegate replay hello.py greeter ann --from monday
    tidegate replay hello.py greeter ann --from monday --pdb
    """
    import asyncio

    from tidegate.errors import UnknownNameError
    from tidegate_app.actions.replay import Replay
    from tidegate_app.actions.savepoint import Savepoints
    from tidegate_app.app_loader import load_app

    loaded, flags = load_app(app), take_flags(options)
    if service not in loaded.services:
        raise UnknownNameError("service", service, loaded.services)
    definition = loaded.define()
    reader = Savepoints(definition, flags).open(savepoint)
    replaying = Replay(definition, flags, loaded.services[service], reader, key)
    entries, events = asyncio.run(replaying.gather())
    replaying.run(entries, events, debug=debug)

"""tidegate checkpoint"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, json_option, setting_flags, take_flags

__all__ = ("command",)


@click.group("checkpoint")
def command() -> None:
    """Look at the checkpoints of an app, or take one now.

    Workers take them by themselves every checkpoint_interval seconds. One that is to stay, under a name, is a
    savepoint.
    """


@command.command("list")
@app_argument
@json_option
@setting_flags("broker", "data", "checkpoint_storage")
def list_(app: str, as_json: bool, **options: Any) -> None:
    """List the complete checkpoints of an APP, the newest first.

    \b
    tidegate checkpoint list hello.py
    tidegate checkpoint list hello.py --json | jq '.[0].epoch'
    """
    from tidegate_app.actions.checkpoint import SHOWN, list_checkpoints, row
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import note, print_json, print_table

    where, found = list_checkpoints(load_app(app).define(), take_flags(options))
    if as_json:
        print_json(found)
        return
    print_table(SHOWN, [row(checkpoint) for checkpoint in found], right=SHOWN[2:])
    if not found:
        note(f"There are none in {where}: 'tidegate checkpoint trigger' takes one.")


@command.command()
@app_argument
@json_option
@click.option("--timeout", type=float, metavar="SECONDS", help="How long to wait; twice the checkpoint_timeout.")
@setting_flags("broker", "data", "checkpoint_storage")
def trigger(app: str, as_json: bool, timeout: float | None, **options: Any) -> None:
    """Have the workers of an APP take a checkpoint now, and wait until it is complete. They go on meanwhile.

    \b
    tidegate checkpoint trigger hello.py
    """
    import asyncio

    from tidegate_app.actions.checkpoint import take_checkpoint, told
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import note, print_json

    found = asyncio.run(take_checkpoint(load_app(app).define(), take_flags(options), timeout=timeout))
    if as_json:
        print_json(found)
    else:
        note(told(found))

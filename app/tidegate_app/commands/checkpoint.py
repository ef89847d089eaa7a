"""tidegate checkpoint"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, json_option, setting_flags, take_flags

__all__ = ("command",)


@click.group("checkpoint")
def command() -> None:
    """List the checkpoints of an app, or take one now.

    Workers take a checkpoint every checkpoint_interval seconds. For a named one that is kept, take a savepoint.
    """


@command.command("list")
@app_argument
@json_option
@setting_flags("broker", "data", "checkpoint_storage")
def list_(app: str, as_json: bool, **options: Any) -> None:
    """List the complete checkpoints of an APP, newest first.

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
        note(f"There are no checkpoints in {where}; 'tidegate checkpoint trigger' takes one.")


@command.command()
@app_argument
@json_option
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="How long to wait; default: twice the checkpoint_timeout."
)
@setting_flags("broker", "data", "checkpoint_storage")
def trigger(app: str, as_json: bool, timeout: float | None, **options: Any) -> None:
    """Trigger a checkpoint of an APP, and wait until it is complete. Processing continues meanwhile.

    \b
    tidegate checkpoint trigger hello.py
    """
    import asyncio

    from tidegate_app.actions.checkpoint import completion_text, take_checkpoint
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import note, print_json

    found = asyncio.run(take_checkpoint(load_app(app).define(), take_flags(options), timeout=timeout))
    if as_json:
        print_json(found)
    else:
        note(completion_text(found))

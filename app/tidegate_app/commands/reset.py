"""tidegate reset"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("reset")
@app_argument
@click.option("--outputs", is_flag=True, help="Also empty the topics that services write, dead letters included.")
@click.option("--all", "everything", is_flag=True, help="Also empty the input topics: all data is deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@setting_flags("broker", "data")
def command(app: str, outputs: bool, everything: bool, yes: bool, **options: Any) -> None:
    """Delete the state, timers and positions of all services of an APP, and reprocess its input topics.

    Topics between services are emptied, too, since they are written again. Output topics keep their records and get
    them once more, unless --outputs is given. With the embedded log, the running worker performs the reset and
    continues; with a broker, stop the workers first.

    \b
    tidegate reset hello.py
    tidegate reset hello.py --outputs --yes
    """
    import asyncio

    from tidegate_app.actions.reset import ResetCommand
    from tidegate_app.app_loader import load_app

    resetting = ResetCommand(load_app(app).define(), take_flags(options), outputs=outputs, everything=everything)
    asyncio.run(resetting.run(ask=not yes))

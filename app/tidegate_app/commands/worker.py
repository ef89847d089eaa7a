"""tidegate worker"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import SETTING_NAMES, app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("worker")
@app_argument
@click.option(
    "--until-end",
    is_flag=True,
    help="Handle what is there now, let time come to its end, fire the timers that are due, commit, and exit.",
)
@setting_flags(*SETTING_NAMES)
def command(app: str, until_end: bool, **options: Any) -> None:
    """Run the services of an APP, until Ctrl-C or SIGTERM.

    One worker owns a data directory. Everything else ('send', 'tail', 'state', ...) works beside it. After a crash
    it goes on where the last commit was; its first lines say what it recovered.

    \b
    tidegate worker hello.py
    tidegate worker package.module:app --data /var/lib/hello --metrics 127.0.0.1:9464
    tidegate worker hello.py --until-end
    """
    from tidegate_app.loading import load_app
    from tidegate_app.worker import run_worker

    run_worker(load_app(app), take_flags(options), until_end=until_end)

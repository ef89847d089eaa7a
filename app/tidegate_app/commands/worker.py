"""tidegate worker"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import SettingsCommand, all_setting_flags, app_argument, take_flags

__all__ = ("command",)


@click.command("worker", cls=SettingsCommand)
@app_argument
@click.option(
    "--until-end",
    is_flag=True,
    help="Handle the current input, advance event time to its end, fire the timers, commit, and exit.",
)
@click.option("--no-api", is_flag=True, help="No HTTP API and no dashboard; the same as --api off.")
@click.option("--insecure", is_flag=True, help="Serve other machines without tokens; the same as --api-insecure on.")
@click.option("--child", hidden=True, help="Set by a worker for each of its child processes.")
@all_setting_flags
def command(app: str, until_end: bool, no_api: bool, insecure: bool, child: str | None, **options: Any) -> int:
    """Run the services of an APP until Ctrl-C or SIGTERM.

    One worker owns an embedded log; with a broker any number of workers share the tasks, on this machine (--processes,
    or several commands) and on others. All other commands work beside them. After a crash a worker continues from the
    last commit; its first log lines say what it recovered.

    \b
    tidegate worker hello.py
    tidegate worker hello.py --api 127.0.0.1:9000
    tidegate worker package.module:app --data /var/lib/hello --metrics 127.0.0.1:9464
    tidegate worker hello.py --broker kafka://127.0.0.1:9092 --processes 4
    tidegate worker hello.py --until-end
    """
    from tidegate_app.app_loader import load_app
    from tidegate_app.process_pool import run_pool
    from tidegate_app.worker import run_child, run_worker

    flags = take_flags(options)
    if no_api:
        flags["api"] = "off"
    if insecure:
        flags["api_insecure"] = "on"
    if child is not None:
        return run_child(child, app, flags, until_end=until_end)
    loaded = load_app(app)
    resolved = loaded.define().resolve(flags)
    if resolved.settings.processes > 1:
        run_pool(app, flags, resolved, until_end=until_end)
    else:
        run_worker(loaded, flags, until_end=until_end)
    return 0

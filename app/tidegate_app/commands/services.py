"""tidegate services"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, json_option, setting_flags, take_flags

__all__ = ("command",)


@click.command("services")
@app_argument
@json_option
@setting_flags("broker", "data")
def command(app: str, as_json: bool, **options: Any) -> None:
    """List the services of an APP: inputs, outputs, states, timers, tasks, error policies.

    Also their progress: the lag, which is the number of input offsets that are not handled yet, and the lowest
    watermark of their tasks. --json shows both per task, too.

    \b
    tidegate services hello.py
    tidegate services hello.py --json | jq '.[] | {name, lag}'
    """
    import asyncio

    from tidegate_app.actions.services import event_time, list_services
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import note, print_json, print_table

    rows, workers = asyncio.run(list_services(load_app(app).define(), take_flags(options)))
    if as_json:
        print_json(rows)
        return
    print_table(
        ("service", "inputs", "outputs", "states", "timers", "errors", "tasks", "lag", "event time"),
        [
            (
                row["name"],
                "\n".join(row["inputs"]),
                "\n".join(row["outputs"]),
                "\n".join(f"{name}: {state}" for name, state in row["states"].items()),
                "\n".join(row["timers"]),
                row["errors"],
                str(row["tasks"]),
                "" if row["lag"] is None else f"{row['lag']:,}",
                event_time(row["watermark"]),
            )
            for row in rows
        ],
        right=("tasks", "lag"),
    )
    note(f"Run by {', '.join(workers)}." if workers else "No worker runs; 'tidegate worker' starts one.")

"""tidegate tail"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("tail")
@app_argument
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start with the oldest record instead of the next one.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Exit after this many records.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition.")
@click.option("--until-end", is_flag=True, help="Exit when the current records are printed.")
@setting_flags("broker", "data")
def command(
    app: str,
    topic: str,
    from_beginning: bool,
    count: int | None,
    partition: int | None,
    until_end: bool,
    **options: Any,
) -> None:
    """Print the committed records of a TOPIC as JSON lines, and continue with new ones.

    A line has key, value, timestamp, partition, offset and headers. Bytes that are not JSON are {"base64": ...}. Works
    beside a running worker and without one; Ctrl-C ends it.

    \b
    tidegate tail hello.py counts
    tidegate tail hello.py counts --from-beginning --count 10 | jq .value
    tidegate tail hello.py hello.greeter.dead-letters --from-beginning --until-end
    """
    import asyncio
    import contextlib

    from tidegate_app.actions.tail import TailCommand, TailOptions
    from tidegate_app.app_loader import load_app

    tail = TailOptions(
        topic=topic,
        from_beginning=from_beginning or until_end,
        count=count,
        partition=partition,
        until_end=until_end,
    )
    tailing = TailCommand(load_app(app).define(), take_flags(options), tail)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(tailing.run())

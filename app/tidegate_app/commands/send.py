"""tidegate send"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("send")
@app_argument
@click.argument("topic")
@click.option("--key", "field", metavar="FIELD", help="Take each record's key from this field of its value.")
@click.option(
    "--records",
    "envelopes",
    is_flag=True,
    help='Lines are records: {"value": ..., "key": ..., "timestamp": ..., "headers": {...}}, as tail prints them; '
    "the value null is a tombstone.",
)
@click.option("--skip-bad", is_flag=True, help="Skip and count invalid lines.")
@setting_flags("broker", "data")
def command(app: str, topic: str, field: str | None, envelopes: bool, skip_bad: bool, **options: Any) -> None:
    """Send JSON lines from stdin to a TOPIC of an APP.

    Each line is a value, validated against the topic's type and keyed by the topic's key function. An invalid line ends
    the command after the lines before it are sent. Works beside a running worker and without one.

    \b
    echo '{"name": "ann"}' | tidegate send hello.py greetings
    tidegate send hello.py greetings < greetings.jsonl
    tidegate tail old.py greetings --from-beginning --until-end | tidegate send new.py greetings --records
    """
    import asyncio

    from tidegate_app.actions.send import SendCommand
    from tidegate_app.app_loader import load_app

    sending = SendCommand(load_app(app).define(), take_flags(options), topic, skip_bad=skip_bad)
    asyncio.run(sending.run(field, envelopes))

"""tidegate tell"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("tell")
@app_argument
@click.argument("service")
@click.argument("key")
@click.argument("content", metavar="JSON", default="{}")
@click.option("--message", metavar="NAME", help="The type of the message, if the service handles several.")
@click.option("--idempotency-key", metavar="TEXT", help="Messages with the same key are handled once.")
@setting_flags("broker", "data")
def command(
    app: str, service: str, key: str, content: str, message: str | None, idempotency_key: str | None, **options: Any
) -> None:
    """Put a message into the mailbox of the actor KEY of a SERVICE.

    The message is validated against its type before it is sent, and durable when the command returns. Works beside a
    running worker and without one.

    \b
    tidegate tell bank.py account ann '{"amount": 5}' --message Deposit
    """
    import asyncio

    from tidegate_app.actions.tell import ActorCommand
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import note

    telling = ActorCommand(load_app(app).define(), take_flags(options), service, key)
    posted = asyncio.run(telling.tell(content, message, idempotency_key))
    note(f"Sent to the actor {key} of {service}, in {posted.topic}[{posted.partition}].")

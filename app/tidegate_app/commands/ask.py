"""tidegate ask"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.command("ask")
@app_argument
@click.argument("service")
@click.argument("key")
@click.argument("content", metavar="JSON", default="{}")
@click.option("--message", metavar="NAME", help="The type of the message, if the service handles several.")
@click.option("--idempotency-key", metavar="TEXT", help="Messages with the same key are handled once.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, metavar="N",
              help="Seconds to wait for the reply.")  # fmt: skip
@setting_flags("broker", "data")
def command(
    app: str,
    service: str,
    key: str,
    content: str,
    message: str | None,
    idempotency_key: str | None,
    timeout: float,
    **options: Any,
) -> None:
    """Send a message to the actor KEY of a SERVICE, and print its reply as JSON.

    The reply is sent once the message's effects are committed, so a worker must run.

    \b
    tidegate ask bank.py account ann '{"amount": 3}' --message Withdraw
    """
    import asyncio

    from tidegate_app.actions.tell import ActorCommand
    from tidegate_app.app_loader import load_app

    asking = ActorCommand(load_app(app).define(), take_flags(options), service, key)
    click.echo(asyncio.run(asking.ask(content, message, idempotency_key, timeout)))

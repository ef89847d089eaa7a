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
@click.option("--message", metavar="NAME", help="Which of its messages this is, if the service takes several.")
@click.option("--idempotency-key", metavar="TEXT", help="Under the same one, it is handled once, and answered alike.")
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
    """Ask the actor KEY of a SERVICE, and print its reply as JSON.

    The reply comes when what the message did is committed; for that a worker must run.

    \b
    tidegate ask bank.py account ann '{"amount": 3}' --message Withdraw
    """
    import asyncio

    from tidegate_app.actions.tell import Messaging
    from tidegate_app.app_loader import load_app

    asking = Messaging(load_app(app).define(), take_flags(options), service, key)
    click.echo(asyncio.run(asking.ask(content, message, idempotency_key, timeout)))

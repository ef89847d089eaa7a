"""tidegate state"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, setting_flags, take_flags

__all__ = ("command",)


@click.group("state")
def command() -> None:
    """Query the committed state of a service, as JSON.

    With the embedded log it queries the running worker; without one, it recovers the stores in the data directory
    itself, as a worker does. With a broker it reads the changelogs, of one partition only if a KEY is given.
    """


@command.command("get")
@app_argument
@click.argument("service")
@click.argument("state")
@click.argument("key", required=False)
@setting_flags("broker", "data")
def get(app: str, service: str, state: str, key: str | None, **options: Any) -> None:
    """Print the value of a KEY in a STATE of a SERVICE. Exits with 1 if there is none.

    A key is given as text, as digits for a number, else as JSON. An operator state has no key.

    \b
    tidegate state get hello.py greeter seen ann
    """
    import asyncio

    from tidegate.errors import UsageError
    from tidegate_app.actions.state import StateCommand
    from tidegate_app.app_loader import load_app
    from tidegate_app.output import write_lines

    looking = StateCommand(load_app(app).define(), take_flags(options), service)
    found, value = asyncio.run(looking.get(state, key))
    if not found:
        raise UsageError(f"{service}.{state} has no value for the key {key!r}")
    write_lines([value])


@command.command("list")
@app_argument
@click.argument("service")
@click.argument("state")
@click.argument("prefix", required=False, default="", metavar="[KEY-PREFIX]")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Exit after this many keys.")
@setting_flags("broker", "data")
def list_(app: str, service: str, state: str, prefix: str, limit: int | None, **options: Any) -> None:
    """Print all keys of a STATE of a SERVICE with their values, as JSON lines in byte order of the keys.

    \b
    tidegate state list hello.py greeter seen
    tidegate state list hello.py greeter seen an --limit 10
    """
    import asyncio

    from tidegate_app.actions.state import StateCommand
    from tidegate_app.app_loader import load_app

    looking = StateCommand(load_app(app).define(), take_flags(options), service)
    asyncio.run(_print(looking.list(state, prefix), limit))


@command.command("timers")
@app_argument
@click.argument("service")
@click.argument("key", required=False)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Exit after this many timers.")
@setting_flags("broker", "data")
def timers(app: str, service: str, key: str | None, limit: int | None, **options: Any) -> None:
    """Print the pending timers of a SERVICE, of one KEY or of all, as JSON lines.

    \b
    tidegate state timers hello.py greeter ann
    """
    import asyncio

    from tidegate_app.actions.state import StateCommand
    from tidegate_app.app_loader import load_app

    looking = StateCommand(load_app(app).define(), take_flags(options), service)
    asyncio.run(_print(looking.timers(key), limit))


async def _print(lines: Any, limit: int | None) -> None:
    from contextlib import aclosing

    from tidegate_app.output import write_lines

    async with aclosing(lines):
        printed = 0
        async for line in lines:
            write_lines([line])
            printed += 1
            if printed == limit:
                return

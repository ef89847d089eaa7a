"""Apps that ran: what tests of readers read. And commands, in the session that the tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from click.testing import CliRunner, Result

from tidegate import App, Topic
from tidegate.errors import TidegateError
from tidegate.host.host import Host
from tidegate_app.cli import cli

__all__ = ("Sent", "ran", "tidegate")

Sent = tuple[Topic[Any], Iterable[Any]]
"""A topic and values for it."""


def ran(app: App, flags: Mapping[str, Any], *sent: Sent) -> None:
    """Send these, let the services handle everything that is there, and stop."""
    asyncio.run(_ran(app, flags, sent))


async def _ran(app: App, flags: Mapping[str, Any], sent: Iterable[Sent]) -> None:
    app.host = Host(app.define, flags=flags)
    await app.host.start()
    for topic, values in sent:
        await topic.send_many(values)
    await app.host.stop()
    bounded = Host(app.define, flags=flags, until_end=True)
    await bounded.start()
    await bounded.run()
    await bounded.stop()


def tidegate(*arguments: Any) -> Result:
    """Run a command, which must succeed."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if isinstance(done.exception, TidegateError):
        raise done.exception
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done

"""`make run`: the app, a generator of likes and a live screen in one process, until Ctrl-C or for some seconds.

It ends with a check of the whole log, including earlier runs: a restart after a crash continues where the run stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import click
from rich.console import Console

from examples.tinder_match.app import app, likes
from examples.tinder_match.board import Board, Recovery, recovery_of
from examples.tinder_match.check import Summary, check
from examples.tinder_match.generator import Generator, LikeStream, find_origin
from examples.tinder_match.screen import Screen, curl, line
from tidegate.errors import TidegateError
from tidegate.host.host import Host
from tidegate_app.api_server import open_api

T = TypeVar("T")
_REFRESH = 0.5
"""Seconds between two frames."""
PERSON = "Ada Abe"
"""The person whose inbox is shown first."""
_SHOWN = 10
"""The maximum number of printed differences."""


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after so many seconds; else run until Ctrl-C.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Where to keep data.  [.tidegate]")
@click.option("--rate", type=click.FloatRange(min=1), default=500, show_default=True, help="Likes per second.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, other likes.")
@click.option("--plain", is_flag=True, help="A line each second instead of the screen.")
@click.pass_context
def main(ctx: click.Context, seconds: float | None, data: Path | None, rate: float, seed: int, plain: bool) -> None:
    """Watch people match: the Tinder example on its own log, with generated likes."""
    if data is not None:
        app.host.flags["data"] = data
    try:
        summary = asyncio.run(_run(seconds, rate, seed, plain))
    except TidegateError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"Folded {summary.likes:,} likes; compared matches, notices and {summary.people:,} inboxes with that.")
    for difference in summary.differences[:_SHOWN]:
        click.echo(f"  {difference}")
    differences = len(summary.differences)
    click.echo(f"{summary.matches:,} matches, {differences:,} difference{'' if differences == 1 else 's'}")
    ctx.exit(1 if summary.differences else 0)


async def _run(seconds: float | None, rate: float, seed: int, plain: bool) -> Summary:
    """1. Start the app. 2. Send likes and show the results. 3. Check all results. 4. Stop the app."""
    async with _started() as recovery:
        host: Host = app.host
        if host.address:
            click.echo(f"Dashboard: {host.address}\nLive state: {curl(host.address, PERSON)}")
        origin = await find_origin(host.log, likes.name, likes.definition.codec.decode)
        generator = Generator(LikeStream(seed, origin), likes.send_many, rate=rate)
        with _stoppable(generator, seconds):
            async with _shown(Board(host, generator, recovery), plain):
                await _unless_it_fails(generator.run())
        click.echo(f"Stopped after {generator.sent:,} likes. Checking all {generator.stream.number:,} so far ...")
        return await _unless_it_fails(check(host))


@contextlib.asynccontextmanager
async def _started() -> AsyncIterator[Recovery]:
    started = perf_counter()
    api = open_api(app, app.define().resolve(app.host.flags), until_end=False)
    try:
        if api is not None:
            await api.start()
        await app.start()
        yield recovery_of(app.host, (perf_counter() - started) * 1000)
    finally:
        if api is not None:
            await api.stop()
        await app.stop()


@contextlib.contextmanager
def _stoppable(generator: Generator, seconds: float | None) -> Iterator[None]:
    """Stop after the given time, or at Ctrl-C or SIGTERM. A second Ctrl-C ends the check, too."""
    loop = asyncio.get_running_loop()
    if seconds is not None:
        loop.call_later(seconds, generator.stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, generator.stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _shown(board: Board, plain: bool) -> AsyncIterator[None]:
    showing = asyncio.gather(board.watch(), _show(board, Console(), plain))
    try:
        yield
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def _unless_it_fails(work: Coroutine[Any, Any, T]) -> T:
    """Run this while the app runs; if the app fails first, raise its error."""
    working, failing = asyncio.ensure_future(work), asyncio.ensure_future(app.wait())
    try:
        await asyncio.wait((working, failing), return_when=asyncio.FIRST_COMPLETED)
        if app.failure is not None:
            raise app.failure
        return await working
    finally:
        for task in (working, failing):
            task.cancel()
        await asyncio.gather(working, failing, return_exceptions=True)


async def _show(board: Board, console: Console, plain: bool) -> None:
    screen = None if plain or not Screen.fits(console) else Screen(console)
    loop = asyncio.get_running_loop()
    due = loop.time() + 1
    while True:
        measured = loop.time() >= due
        if measured:
            await board.measure()
            due += 1
        snapshot = await board.snapshot()
        if screen is not None:
            await asyncio.to_thread(screen.draw, snapshot)
        elif measured:
            click.echo(line(snapshot))
        await asyncio.sleep(_REFRESH)


if __name__ == "__main__":
    main()

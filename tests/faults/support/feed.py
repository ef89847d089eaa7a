"""Seeded input: appended by the test beforehand, or sent by a worker itself while it runs."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
from collections.abc import Iterator

from examples.tinder_match.app import likes
from examples.tinder_match.events import Like
from examples.tinder_match.generator import SPEED, LikeStream, find_origin
from tests.faults.support.apps import Entry, acknowledge, ledger
from tidegate import App
from tidegate.errors import StorageFullError

__all__ = ("START", "entries", "send_entries", "send_fast", "send_few_likes", "send_large", "send_likes", "send_some")

START = 1_700_000_000_000


def entries(
    seed: int,
    count: int,
    *,
    keys: int = 12,
    waiting: float = 0.0,
    longest: float = 0.02,
    failing: float = 0.0,
    fails: int = 1,
    in_order: bool = False,
    first: int = 1,
) -> Iterator[Entry]:
    """`count` entries. `waiting`, `failing`: which share of them waits, up to `longest` seconds, or fails."""
    dice = random.Random(seed)
    at = START
    for number in range(first, first + count):
        at += dice.randrange(0, 40)
        jitter = 0 if in_order else dice.randrange(-150, 50)
        yield Entry(
            id=number,
            key=f"k{dice.randrange(keys)}",
            amount=dice.randrange(4),
            at=at + jitter,
            wait=round(dice.uniform(0.001, longest), 4) if dice.random() < waiting else 0.0,
            fails=fails if dice.random() < failing else 0,
            owner=f"o{dice.randrange(keys)}",
        )


async def send_likes(app: App) -> None:
    """A stream of likes for the Tinder services, which continues from the end of the log until the process is killed.

    What was sent and not acknowledged may be in the log, or not."""
    await _send_likes(app, 40, (0, 0, 0.002, 0.01))


async def send_few_likes(app: App) -> None:
    """The same, but so few that what comes in a few seconds can be handled many times over."""
    await _send_likes(app, 6, (0.01, 0.02))


async def _send_likes(app: App, most: int, pauses: tuple[float, ...]) -> None:
    origin = await find_origin(app.host.log, likes.name, likes.definition.codec.decode)
    stream = LikeStream(int(os.environ["TIDEGATE_SEED"]), origin)
    dice = random.Random()
    while True:
        batch: list[Like] = stream.next(dice.randint(1, most), round(0.02 * SPEED * 1000))
        if batch:
            await likes.send_many(batch)
            acknowledge("\n".join(like.id for like in batch))
        await asyncio.sleep(dice.choice(pauses))


async def send_entries(app: App) -> None:
    """Beside services that take entries: a few at a time, until the process is killed."""
    topic = app.topics["entries"]
    coming = entries(int(os.environ["TIDEGATE_SEED"]), sys.maxsize, in_order=True)
    while True:
        await topic.send_many(list(itertools.islice(coming, 5)))
        await asyncio.sleep(0.015)


async def send_large(app: App) -> None:
    """Large entries for the ledger, until the log is full."""
    topic = ledger.topics["entries"]
    number = 1_000 * os.getpid()
    while True:
        number += 1
        entry = Entry(id=number, key=f"k{number % 12}", amount=1, at=START, owner=os.urandom(5_000).hex())
        try:
            await topic.send(value=entry)
        except StorageFullError:
            return  # it is for the worker to say so
        acknowledge(str(number))


async def send_some(app: App) -> None:
    """Beside the ledger: a few entries, one after the other; then it stops the worker."""
    topic = ledger.topics["entries"]
    for entry in entries(1, 40, first=70_001):
        await topic.send(value=entry)
        acknowledge(str(entry.id))
    os.kill(os.getpid(), signal.SIGTERM)


async def send_fast(app: App) -> None:
    """Beside the ledger: slow entries, as fast as the log takes them. Acknowledges bytes."""
    topic = ledger.topics["entries"]
    padding = os.urandom(1_000).hex()
    for first in itertools.count(100_001, 500):
        numbers = range(first, first + 500)
        batch = [Entry(id=n, key=f"k{n % 5000}", amount=1, at=START, wait=0.2, owner=padding) for n in numbers]
        await topic.send_many(batch)
        acknowledge(str(len(batch) * len(padding)))
        await asyncio.sleep(0)

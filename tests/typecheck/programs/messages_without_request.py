"""Messages of plain types, replies of a union, and a service of a topic that takes messages, too."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, ListState
from tidegate.testing import AppHarness


class Add(msgspec.Struct, frozen=True):
    word: str


class Last(msgspec.Struct, frozen=True):
    """Which word came last?"""


app = App("words")
words = app.topic("words", value_type=str, key=len, key_type=int)


@app.process(words)
async def book(ctx: Context[int], word: str, known: ListState[str]) -> None:
    known.append(word)


@book.on(Add, name="add", reply=int)
async def add(ctx: Context[int, int], message: Add, known: ListState[str]) -> None:
    known.append(message.word)
    ctx.reply(len(known))


@book.on(Last, reply=str | None)
async def last(ctx: Context, message: Last, known: ListState[str]) -> None:
    ctx.reply(known[-1] if known else None)


@book.on(str | int, name="either")
async def either(ctx: Context, message: str | int, known: ListState[str]) -> None:
    known.append(str(message))


async def look(length: int) -> str | None:
    word: str | None = await book.ask(length, Last())
    return word


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(words, "tea")
        assert harness.ask(book, 3, Add("ink")) == 2
        assert harness.ask(book, 3, Last()) == "ink"
        assert harness.ask(book, 4, Last()) is None

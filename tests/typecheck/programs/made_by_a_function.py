"""An app made by a function, with a handler that is local to it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, Service, Topic, ValueState
from tidegate.testing import AppHarness


class Word(msgspec.Struct, frozen=True):
    text: str


def make(name: str, limit: int) -> tuple[App, Topic[Word], Service[str]]:
    app = App(name)
    words = app.topic("words", value_type=Word, key="text")
    alerts = app.topic("alerts", value_type=Word)

    @app.process(words, to=alerts, name=f"{name}-counter")
    async def counter(ctx: Context[str], word: Word, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.value += 1
        if seen.value == limit:
            ctx.emit(word, to=alerts)

    return app, words, counter


def main() -> None:
    app, words, counter = make("book", 2)
    with AppHarness(app) as harness:
        harness.send_many(words, [Word("tea"), Word("tea")])
        assert harness.state(counter, "seen", "tea") == 2
        assert harness.outputs("alerts") == [Word("tea")]

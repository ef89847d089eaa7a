from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import Project

HELLO = '''
from typing import Annotated

import msgspec

from tidegate import DEAD_LETTER, App, Context, Default, ValueState

app = App("hello")


class Greeting(msgspec.Struct):
    name: str
    text: str = "hi"


class Count(msgspec.Struct):
    name: str
    count: int


greetings = app.topic("greetings", value_type=Greeting, key="name")
counts = app.topic("counts", value_type=Count, key="name")
notes = app.topic("notes", value_type=dict)


@app.process(greetings, to=counts)
async def greeter(ctx: Context, greeting: Greeting, seen: Annotated[ValueState[int], Default(0)]) -> None:
    """Counts greetings."""
    if greeting.text == "bad":
        raise ValueError("I do not like this greeting")
    seen.value += 1
    ctx.timers.after(60, name="later")
    ctx.emit(Count(name=ctx.key, count=seen.value))


@greeter.on_timer("later")
async def later(ctx: Context, seen: Annotated[ValueState[int], Default(0)]) -> None:
    """A minute later by event time, or when a bounded run ends."""
    ctx.emit(Count(name=ctx.key, count=-seen.value))


@app.process(notes, key_by="who", key_type=int, errors=DEAD_LETTER)
async def pad(ctx: Context, note: dict, last: ValueState[dict | None]) -> None:
    last.value = note
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, hello=HELLO)
    yield made
    made.close()

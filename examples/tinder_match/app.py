"""The app: one actor per pair of people finds matches, one actor per person keeps their inbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec

from examples.tinder_match.events import LATE, MONTH, Like, Match, Notice, pair_of
from tidegate import App, BoundedOutOfOrderness, Context, Default, EventTime, MapState, ValueState

__all__ = ("app", "inbox", "likes", "matches", "matchmaker", "notices")

# Everything is kept, so that what came out can be checked against all likes since the first one. The watermark waits
# for late likes: a pair is forgotten only when every like that could still answer has come, so that what becomes of a
# pair depends on its own likes alone, not on how fast time passes for others.
app = App(
    "tinder",
    time=EventTime("at"),
    watermark=BoundedOutOfOrderness(by=timedelta(milliseconds=LATE)),
    retention_hours=0,
)

likes = app.topic("likes", value_type=Like, key=pair_of)
matches = app.topic("matches", value_type=Match, key="pair")
notices = app.topic("notices", value_type=Notice, key="person")


class Pair(msgspec.Struct, frozen=True):
    """The state of a pair of people: who liked first, and whether the other person answered."""

    first: str
    at: int
    matched: bool = False


@app.process(likes, to=[matches, notices])
async def matchmaker(ctx: Context, like: Like, pair: ValueState[Pair | None]) -> None:
    """One actor per pair of people: the second of two opposite likes is a match."""
    known = pair.value
    if known is None or (not known.matched and like.at - known.at > MONTH):
        pair.value = Pair(first=like.liker, at=like.at)
        ctx.timers.at(like.at + MONTH, name="forget")
    elif not known.matched and known.first != like.liker:
        pair.value = Pair(first=known.first, at=known.at, matched=True)
        ctx.timers.cancel("forget")
        ctx.emit(Match(pair=ctx.key, first=known.first, second=like.liker, at=like.at))
        for person, other in ((known.first, like.liker), (like.liker, known.first)):
            ctx.emit(Notice(person=person, other=other, pair=ctx.key, at=like.at), to=notices)


@matchmaker.on_timer("forget")
async def forget(ctx: Context, pair: ValueState[Pair | None]) -> None:
    """No answer came within a month."""
    pair.clear()


@app.process(notices)
async def inbox(
    ctx: Context, notice: Notice, matches: MapState[str, int], unread: Annotated[ValueState[int], Default(0)]
) -> None:
    """One actor per person: who matched with them and when, and how many of those they have not looked at."""
    matches[notice.other] = notice.at
    unread.value += 1

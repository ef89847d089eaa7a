"""The events: likes come in, matches and notices go out."""

from __future__ import annotations

import msgspec

__all__ = ("DAY", "LATE", "MONTH", "Like", "Match", "Notice", "pair_of")

DAY = 24 * 3600 * 1000
MONTH = 30 * DAY
"""How long an unanswered like is remembered, in ms."""
LATE = 3 * DAY
"""How much later than younger likes a like may arrive: phones are offline at times."""


class Like(msgspec.Struct, frozen=True):
    id: str
    liker: str
    liked: str
    at: int
    """When, in ms since 1970: event time."""


class Match(msgspec.Struct, frozen=True):
    pair: str
    first: str
    """Who liked first."""
    second: str
    at: int
    """When the second like came."""


class Notice(msgspec.Struct, frozen=True):
    """The notice to a person about a match."""

    person: str
    other: str
    pair: str
    at: int


def pair_of(like: Like) -> str:
    """The same for both directions: the two names, sorted."""
    return "|".join(sorted((like.liker, like.liked)))

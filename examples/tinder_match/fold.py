"""The expected outputs: the rules of the example as a plain fold over likes, and a comparison with the actual outputs.

The likes of a pair count in log order. The services agree with this fold as long as no like is more than LATE behind
the newest one before it in its partition. A later like is behind the watermark, and the like that it answers may have
expired already, which a fold over a single pair cannot know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from examples.tinder_match.events import MONTH, Like, Match, Notice, pair_of

__all__ = ("Expected", "Inbox", "compare", "expected")


@dataclass
class Inbox:
    """The state of a person's actor."""

    matches: dict[str, int] = field(default_factory=dict)
    """Matches, by person, with their times."""
    unread: int = 0


@dataclass
class Expected:
    """The results of the added likes, in the order of each pair."""

    likes: int = 0
    matches: dict[str, list[Match]] = field(default_factory=dict)
    """The matches by pair. There is at most one: after it, further likes of the pair are ignored."""
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    remembered: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)
    """By pair: the unanswered like and its time."""

    def add(self, like: Like) -> None:
        """- The first like of a pair is remembered, for a month by the likes' own time.
        - An opposite like within that month is a match; further likes of the pair are ignored.
        - The same one again changes nothing within that month.
        - Any like after that month is remembered instead, as if it were the first."""
        self.likes += 1
        pair = pair_of(like)
        if pair in self.matches:
            return
        first, at = self.remembered.get(pair, (None, 0))
        if first is None or like.at - at > MONTH:
            self.remembered[pair] = (like.liker, like.at)
        elif first != like.liker:
            del self.remembered[pair]
            self._match(Match(pair=pair, first=first, second=like.liker, at=like.at))

    def _match(self, match: Match) -> None:
        self.matches.setdefault(match.pair, []).append(match)
        for person, other in ((match.first, match.second), (match.second, match.first)):
            inbox = self.inboxes.setdefault(person, Inbox())
            inbox.matches[other] = match.at
            inbox.unread += 1


def expected(likes: Iterable[Like]) -> Expected:
    """Fold likes, of any number of pairs, each pair's in their order."""
    result = Expected()
    for like in likes:
        result.add(like)
    return result


def compare(
    expected: Expected, matches: Iterable[Match], notices: Iterable[Notice], inboxes: Mapping[str, Inbox]
) -> list[str]:
    """A description of each difference; empty: nothing is lost or duplicated."""
    return [
        *_matches(expected, matches),
        *_notices(expected, notices),
        *_inboxes(expected, inboxes),
    ]


def _matches(expected: Expected, matches: Iterable[Match]) -> Iterable[str]:
    found: dict[str, list[Match]] = {}
    for match in matches:
        found.setdefault(match.pair, []).append(match)
    for pair in sorted(expected.matches.keys() | found.keys()):
        wanted, got = expected.matches.get(pair, []), found.get(pair, [])
        if wanted != got:
            yield f"matches of {pair}: expected {_list(wanted)}, found {_list(got)}"


def _notices(expected: Expected, notices: Iterable[Notice]) -> Iterable[str]:
    """The notices of a person come from many pairs, so their order is arbitrary."""
    wanted = Counter(
        Notice(person=person, other=other, pair=match.pair, at=match.at)
        for ordered in expected.matches.values()
        for match in ordered
        for person, other in ((match.first, match.second), (match.second, match.first))
    )
    found = Counter(notices)
    for notice in sorted(wanted.keys() | found.keys(), key=lambda notice: (notice.person, notice.other)):
        if wanted[notice] != found[notice]:
            yield f"notice to {notice.person} about {notice.other}: expected {wanted[notice]}, found {found[notice]}"


def _inboxes(expected: Expected, inboxes: Mapping[str, Inbox]) -> Iterable[str]:
    empty = Inbox()
    for person in sorted(expected.inboxes.keys() | inboxes.keys()):
        wanted, got = expected.inboxes.get(person, empty), inboxes.get(person, empty)
        if wanted.unread != got.unread:
            yield f"inbox of {person}: expected {wanted.unread} unread, found {got.unread}"
        for other in sorted(wanted.matches.keys() | got.matches.keys()):
            at, found = wanted.matches.get(other), got.matches.get(other)
            if at != found:
                yield f"inbox of {person}: expected {other} at {at}, found {found}"


def _list(matches: list[Match]) -> str:
    return " and ".join(f"{match.first} then {match.second} at {match.at}" for match in matches) or "none"

"""The Tinder services agree with a plain fold over the likes of each pair, however these come."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.tinder_match.app import app, inbox, likes, matches, matchmaker, notices
from examples.tinder_match.events import DAY, LATE, MONTH, Like, Match, Notice
from examples.tinder_match.fold import Expected, Inbox, compare, expected
from tidegate.testing import AppHarness

START = 1_700_000_000_000
COUPLES = tuple(("ann", other) for other in ("bob", "cem", "dee", "eli", "fay", "gus"))
PEOPLE = sorted({person for couple in COUPLES for person in couple})


def like(liker: str, liked: str, at: int) -> Like:
    return Like(id=f"{liker}-{liked}-{at}", liker=liker, liked=liked, at=at)


def match(first: str, second: str, at: int) -> Match:
    return Match(pair="|".join(sorted((first, second))), first=first, second=second, at=at)


def found(*given: Like) -> list[Match]:
    return [made for ordered in expected(given).matches.values() for made in ordered]


# -- the rules -------------------------------------------------------------------------------------------------------
def test_the_opposite_like_makes_a_match() -> None:
    assert found(like("ann", "bob", 5), like("bob", "ann", 9)) == [match("ann", "bob", 9)]


def test_the_same_like_again_makes_none_and_does_not_move_the_first() -> None:
    assert found(like("ann", "bob", 0), like("ann", "bob", 5 * DAY), like("bob", "ann", MONTH + 1)) == []


def test_a_pair_matches_only_once() -> None:
    both = like("ann", "bob", 0), like("bob", "ann", 1)
    assert len(found(*both, *both, like("ann", "bob", 3 * MONTH), like("bob", "ann", 3 * MONTH + 1))) == 1


def test_an_answer_after_exactly_a_month_counts_and_a_later_one_starts_over() -> None:
    assert found(like("ann", "bob", 0), like("bob", "ann", MONTH)) == [match("ann", "bob", MONTH)]
    late = like("ann", "bob", 0), like("bob", "ann", MONTH + 1)
    assert found(*late) == []
    assert found(*late, like("ann", "bob", MONTH + 2)) == [match("bob", "ann", MONTH + 2)]


def test_both_people_find_a_match_in_their_inbox() -> None:
    result = expected([like("ann", "bob", 5), like("bob", "ann", 9), like("ann", "cem", 9), like("cem", "ann", 10)])
    assert result.inboxes == {
        "ann": Inbox({"bob": 9, "cem": 10}, 2),
        "bob": Inbox({"ann": 9}, 1),
        "cem": Inbox({"ann": 10}, 1),
    }


# -- the comparison --------------------------------------------------------------------------------------------------
@dataclass
class Result:
    """What came out."""

    matches: list[Match]
    notices: list[Notice]
    inboxes: dict[str, Inbox]

    def differences(self, wanted: Expected) -> list[str]:
        return compare(wanted, self.matches, self.notices, self.inboxes)


@pytest.fixture
def wanted() -> Expected:
    return expected([like("ann", "bob", 5), like("bob", "ann", 9)])


@pytest.fixture
def right() -> Result:
    pair = "ann|bob"
    return Result(
        matches=[match("ann", "bob", 9)],
        notices=[
            Notice(person="bob", other="ann", pair=pair, at=9),
            Notice(person="ann", other="bob", pair=pair, at=9),
        ],
        inboxes={"ann": Inbox({"bob": 9}, 1), "bob": Inbox({"ann": 9}, 1)},
    )


def test_exact_results_have_no_differences(wanted: Expected, right: Result) -> None:
    assert right.differences(wanted) == []


def test_a_lost_and_a_doubled_match_are_differences(wanted: Expected, right: Result) -> None:
    right.matches *= 2
    assert len(right.differences(wanted)) == 1
    right.matches.clear()
    assert right.differences(wanted) == ["matches of ann|bob: expected ann then bob at 9, found none"]


def test_a_lost_and_a_doubled_notice_are_differences(wanted: Expected, right: Result) -> None:
    right.notices.append(right.notices[0])
    assert right.differences(wanted) == ["notice to bob about ann: expected 1, found 2"]
    del right.notices[1:]
    assert right.differences(wanted) == ["notice to ann about bob: expected 1, found 0"]


def test_a_wrong_inbox_is_a_difference(wanted: Expected, right: Result) -> None:
    right.inboxes["ann"].unread = 2
    del right.inboxes["bob"]
    assert right.differences(wanted) == [
        "inbox of ann: expected 1 unread, found 2",
        "inbox of bob: expected 1 unread, found 0",
        "inbox of bob: expected ann at 9, found None",
    ]


# -- the services ----------------------------------------------------------------------------------------------------
def through_the_services(given: list[Like], *, crash_after: int | None = None) -> Result:
    with AppHarness(app) as harness:
        for number, event in enumerate(given):
            harness.send(likes, event, settle=number % 3 == 0)
            if number == crash_after:
                harness.crash()
        harness.settle()
        return Result(
            matches=harness.outputs(matches),
            notices=harness.outputs(notices),
            inboxes={
                person: Inbox(harness.state(inbox, "matches", person), harness.state(inbox, "unread", person) or 0)
                for person in PEOPLE
            },
        )


steps = st.sampled_from([-LATE, -DAY, 0, MONTH - DAY, MONTH + 1, MONTH + DAY]) | st.integers(-LATE, 2 * MONTH)
moves = st.tuples(st.sampled_from(COUPLES), st.booleans(), steps)


@st.composite
def like_sequences(draw: st.DrawFn) -> list[Like]:
    """Any likes of a few pairs in one partition, none more than LATE behind the youngest before it."""
    drawn: list[Like] = []
    youngest = START
    for (one, other), turned, step in draw(st.lists(moves, min_size=12, max_size=25)):
        liker, liked = (other, one) if turned else (one, other)
        drawn.append(Like(id=str(len(drawn)), liker=liker, liked=liked, at=youngest + step))
        youngest = max(youngest, youngest + step)
    return drawn


@settings(max_examples=120, deadline=None)
@given(given_likes=like_sequences(), crash=st.none() | st.integers(0, 10))
def test_the_services_agree_with_a_plain_fold(given_likes: list[Like], crash: int | None) -> None:
    assert through_the_services(given_likes, crash_after=crash).differences(expected(given_likes)) == []


def test_a_late_answer_finds_its_like_although_other_events_are_a_month_later() -> None:
    given = [
        like("ann", "bob", START),
        like("ann", "cem", START + MONTH + LATE),
        like("bob", "ann", START + MONTH),
    ]
    assert through_the_services(given).matches == [match("ann", "bob", START + MONTH)]


def test_an_unanswered_like_is_forgotten_once_no_answer_can_come_in_time() -> None:
    with AppHarness(app) as harness:
        harness.send(likes, like("ann", "bob", START))
        harness.send(likes, like("ann", "cem", START + MONTH + LATE))
        assert harness.state(matchmaker, "pair", "ann|bob") is not None
        harness.send(likes, like("ann", "cem", START + MONTH + LATE + 1))
        assert harness.state(matchmaker, "pair", "ann|bob") is None
        assert harness.timers(matchmaker, "ann|bob") == []

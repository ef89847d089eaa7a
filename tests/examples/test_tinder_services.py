"""The Tinder services, each promise by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.tinder_match.app import Pair, app, inbox, likes, matches, matchmaker, notices
from examples.tinder_match.events import DAY, LATE, MONTH, Like, Match, Notice
from tidegate.testing import AppHarness

START = 1_700_000_000_000


def like(liker: str, liked: str, at: int = 0) -> Like:
    return Like(id=f"{liker}-{liked}-{at}", liker=liker, liked=liked, at=START + at)


@pytest.fixture
def harness() -> Iterator[AppHarness]:
    with AppHarness(app, partitions=2) as harness:
        yield harness


def send(harness: AppHarness, *several: Like) -> None:
    for one in several:
        harness.send(likes, one)


def test_two_opposite_likes_are_a_match(harness: AppHarness) -> None:
    send(harness, like("ann", "bob"), like("bob", "ann", DAY))
    assert [match.first for match in harness.outputs(matches)] == ["ann"]
    assert [record.key for record in harness.records(matches)] == ["ann|bob"]


def test_both_people_are_notified(harness: AppHarness) -> None:
    send(harness, like("ann", "bob"), like("bob", "ann", DAY))
    told = sorted(harness.outputs(notices), key=lambda notice: notice.person)
    assert told == [
        Notice(person="ann", other="bob", pair="ann|bob", at=START + DAY),
        Notice(person="bob", other="ann", pair="ann|bob", at=START + DAY),
    ]
    assert harness.state(inbox, "matches", "ann") == {"bob": START + DAY}
    assert harness.state(inbox, "unread", "bob") == 1


def test_liking_twice_is_no_match(harness: AppHarness) -> None:
    send(harness, like("ann", "bob"), like("ann", "bob", DAY))
    assert harness.outputs(matches) == []


def test_a_pair_matches_once(harness: AppHarness) -> None:
    send(harness, *(like(*pair, at) for at, pair in enumerate([("ann", "bob"), ("bob", "ann")] * 3)))
    assert len(harness.outputs(matches)) == 1
    harness.finish()
    assert harness.state(matchmaker, "pair", "ann|bob").matched


def test_an_unanswered_like_is_forgotten_after_a_month(harness: AppHarness) -> None:
    send(harness, like("ann", "bob"))
    assert harness.state(matchmaker, "pair", "ann|bob") == Pair(first="ann", at=START)
    assert [timer.at for timer in harness.timers(matchmaker, "ann|bob")] == [START + MONTH]
    harness.advance_watermark(START + MONTH - 1)
    assert harness.state(matchmaker, "pair", "ann|bob") is not None
    harness.advance_watermark(START + MONTH)
    assert harness.state(matchmaker, "pair", "ann|bob") is None
    assert harness.timers(matchmaker, "ann|bob") == []


def test_a_late_answer_within_the_month_counts(harness: AppHarness) -> None:
    send(harness, like("ann", "bob"))
    send(harness, like("cy", "dee", MONTH + LATE))  # time has come so far, but waits for late likes
    send(harness, like("bob", "ann", MONTH))
    assert len(harness.outputs(matches)) == 1


def test_an_answer_after_the_month_is_a_first_like_again(harness: AppHarness) -> None:
    send(harness, like("ann", "bob"), like("bob", "ann", MONTH + 1))
    assert harness.outputs(matches) == []
    assert harness.state(matchmaker, "pair", "ann|bob") == Pair(first="bob", at=START + MONTH + 1)
    assert [timer.at for timer in harness.timers(matchmaker, "ann|bob")] == [START + 2 * MONTH + 1]


def test_a_match_cancels_the_timer(harness: AppHarness) -> None:
    send(harness, like("ann", "bob"), like("bob", "ann", 1))
    assert harness.timers(matchmaker, "ann|bob") == []


def test_an_inbox_collects_all_matches_of_a_person(harness: AppHarness) -> None:
    for number, other in enumerate(("bob", "cy", "dee")):
        send(harness, like("ann", other, number), like(other, "ann", 10 + number))
    assert harness.state(inbox, "matches", "ann") == {"bob": START + 10, "cy": START + 11, "dee": START + 12}
    assert harness.state(inbox, "unread", "ann") == 3


def test_nothing_is_lost_or_doubled_by_crashes(harness: AppHarness) -> None:
    for number in range(20):
        harness.send(likes, like("ann", f"p{number}", number), settle=False)
        harness.send(likes, like(f"p{number}", "ann", number + 1), settle=False)
        harness.settle(commit=number % 3 == 0)
        if number % 5 == 4:
            harness.crash()
    harness.crash()
    assert len(harness.outputs(matches)) == 20
    assert harness.state(inbox, "unread", "ann") == 20


def test_the_inbox_alone(harness: AppHarness) -> None:
    with AppHarness(app, services=[inbox]) as alone:
        alone.send(notices, Notice(person="ann", other="bob", pair="ann|bob", at=5))
        assert alone.state(inbox, "matches", "ann") == {"bob": 5}


def test_a_match_is_what_it_says() -> None:
    with AppHarness(app) as harness:
        send(harness, like("bob", "ann", 5), like("ann", "bob", 7))
        (match,) = harness.outputs(matches)
        assert isinstance(match, Match)
        assert (match.pair, match.first, match.second, match.at) == ("ann|bob", "bob", "ann", START + 7)

"""The made-up likes: always the same for a seed, never the same id twice, and late ones no later than promised."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from examples.tinder_match.app import likes
from examples.tinder_match.events import DAY, LATE, MONTH, Like
from examples.tinder_match.fold import expected
from examples.tinder_match.generator import Generator, LikeStream, Origin, find_origin
from examples.tinder_match.people import name_of
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.testing.memory_log import MemoryLog

decode = likes.definition.codec.decode


def some_likes(seed: int = 1, origin: Origin | None = None, *, days: int = 90, a_day: int = 200) -> list[Like]:
    stream = LikeStream(seed, origin or Origin())
    return [like for _ in range(days * 10) for like in stream.next(a_day // 10, DAY // 10)]


@pytest.fixture(scope="module")
def three_months() -> list[Like]:
    return some_likes()


def test_a_seed_gives_the_same_likes_and_another_one_others(three_months: list[Like]) -> None:
    assert some_likes(1, days=5) == three_months[: len(some_likes(1, days=5))]
    assert some_likes(2, days=5) != some_likes(1, days=5)


def test_no_like_is_later_than_the_watermark_waits(three_months: list[Like]) -> None:
    youngest, latest = 0, 0
    for like in three_months:
        latest = max(latest, youngest - like.at)
        youngest = max(youngest, like.at)
    assert DAY < latest < LATE


def test_a_slow_stream_is_not_later_either() -> None:
    stream, youngest = LikeStream(1, Origin()), 0
    for like in (like for number in range(4000) for like in stream.next(number % 8 == 0, DAY // 20)):
        assert youngest - like.at < LATE
        youngest = max(youngest, like.at)


def test_likes_are_answered_repeated_and_forgotten(three_months: list[Like]) -> None:
    result = expected(three_months)
    assert 0.1 < len(result.matches) / result.likes < 0.3
    given = Counter((like.liker, like.liked) for like in three_months)
    assert sum(count > 1 for count in given.values()) > 100
    too_late = [
        like
        for like in three_months
        if (known := result.remembered.get("|".join(sorted((like.liker, like.liked))))) is not None
        and known[1] - like.at > MONTH
    ]
    assert too_late


def test_some_people_are_far_more_popular_than_others(three_months: list[Like]) -> None:
    liked = Counter(like.liked for like in three_months)
    assert liked.most_common(1)[0][1] > 20 * liked.total() / len(liked)


def test_no_person_likes_themselves_and_names_are_unique(three_months: list[Like]) -> None:
    assert all(like.liker != like.liked for like in three_months)
    assert len({name_of(number) for number in range(30_000)}) == 30_000


# -- going on after a restart ----------------------------------------------------------------------------------------
async def log_with(given: list[Like], partitions: int = 2) -> MemoryLog:
    log = MemoryLog()
    await log.create([TopicSpec(name="likes", partitions=partitions)])
    writer = await log.writer()
    for start in range(0, len(given), 50):
        records: dict[TopicPartition, list[tuple[bytes, bytes, int, tuple[()]]]] = {}
        for number, like in enumerate(given[start : start + 50]):
            source = TopicPartition("likes", number % partitions)
            records.setdefault(source, []).append((b"key", likes.definition.codec.encode(like), 0, ()))
        await writer.append(records)
    return log


async def test_a_first_start_begins_with_the_first_like() -> None:
    assert await find_origin(await log_with([]), "likes", decode) == Origin()


async def test_a_restart_continues_after_the_last_like_in_the_log() -> None:
    given = some_likes(days=30)
    origin = await find_origin(await log_with(given), "likes", decode)
    assert origin == Origin(len(given), max(like.at for like in given))
    more = some_likes(1, origin, days=3)
    assert not {like.id for like in given} & {like.id for like in more}
    assert all(like.at > origin.at - LATE for like in more)
    assert max(like.at for like in more) > origin.at


async def test_likes_of_other_senders_do_not_affect_a_restart() -> None:
    stranger = Like(id="from-the-shell", liker="ann", liked="bob", at=Origin().at + DAY)
    assert await find_origin(await log_with([stranger]), "likes", decode) == Origin(0, stranger.at)


# -- sending ---------------------------------------------------------------------------------------------------------
async def test_likes_are_sent_at_the_rate_until_a_stop() -> None:
    sent: list[Like] = []

    async def send_many(batch: list[Like]) -> None:
        sent.extend(batch)

    generator = Generator(LikeStream(1, Origin()), send_many, rate=1000)
    asyncio.get_running_loop().call_later(0.5, generator.stop)
    await asyncio.wait_for(generator.run(), 5)
    assert 200 < len(sent) == generator.sent < 800

"""Records that pass straight through move the watermark only when somebody looks at it. Whoever does finds it where it
would be if each record had moved it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from tests.support import Bench
from tidegate import MIN_TIME, SKIP, TTL, BoundedOutOfOrderness, Context, ValueState, retry
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.time.watermarks import WatermarkGenerator, WatermarkStrategy

BOUND = 3
BROKEN = b"{not JSON"
START = 1_700_000_000_000
Event = tuple[str, int, bytes]
"""Key, time and value."""
Recent = Annotated[ValueState[int | None], TTL(milliseconds=6, time="event")]


class Highest(WatermarkGenerator):
    """BoundedOutOfOrderness, as a strategy of one's own: each record moves the watermark."""

    highest = MIN_TIME

    def observe(self, timestamp: int, value: Any) -> int:
        self.highest = max(self.highest, timestamp)
        return self.highest - BOUND - 1


@dataclass(frozen=True, kw_only=True)
class OneByOne(WatermarkStrategy):
    def generator(self) -> WatermarkGenerator:
        return Highest()


async def act(ctx: Context, script: Any, recent: Recent) -> None:
    seen: list[Any] = []
    for doing, value in script:
        match doing:
            case "look":
                seen.append((ctx.watermark, ctx.late))
            case "recent":
                seen.append(recent.value)
                recent.value = value
            case "event":
                ctx.timers.at(ctx.timestamp + value, name="ring")
            case "processing":
                ctx.timers.at(ctx.now + value, name="ring", time="processing")
            case "cancel":
                seen.append(ctx.timers.cancel("ring"))
            case "wait":
                await asyncio.sleep(0)
            case "fail":
                raise RuntimeError("on purpose")
    ctx.emit([ctx.timestamp, seen])


async def ring(ctx: Context, recent: Recent) -> None:
    ctx.emit(["ring", ctx.timestamp, ctx.watermark, recent.value])


def events(rng: random.Random, count: int, *, doings: list[tuple[str, int]]) -> list[Event]:
    made: list[Event] = []
    for number in range(count):
        script = rng.choices(doings, k=rng.randint(0, 4))
        raw = msgspec.json.encode(script) if rng.random() > 0.05 else BROKEN
        made.append((rng.choice("abcd"), START + number + rng.randint(-8, 8) + 500 * (rng.random() < 0.01), raw))
    return made


def results(strategy: WatermarkStrategy, sent: list[Event], rng: random.Random, errors: Any) -> list[Any]:
    """What is emitted, in its order; with crashes and small pieces at random."""
    with Bench(
        act, timers={"ring": ring}, topic={"watermark": strategy}, service={"errors": errors}, app={"partitions": 1}
    ) as bench:
        rest = sent
        while rest:
            count = rng.choice((1, 3, 40, 200))
            rows: list[NewRecord] = [(key.encode(), raw, at, ()) for key, at, raw in rest[:count]]
            bench.run(bench._append({TopicPartition("events", 0): rows}))
            bench.settle()
            rest = rest[count:]
            bench.advance(milliseconds=2)
            if rng.random() < 0.2:
                bench.restart()
        return [(record.key, record.value) for record in bench.records(bench.out)]


LOOKS = [("look", 0), ("recent", 1), ("recent", 2)]
TIMERS = [*[("event", after) for after in (0, 5, 20, 100)], ("processing", 0), ("processing", 1), ("cancel", 0)]


@pytest.mark.parametrize(
    ("doings", "errors"),
    [
        ([*LOOKS, ("nothing", 0)], SKIP),
        ([*LOOKS, ("fail", 0)], SKIP),
        ([*LOOKS, *TIMERS, ("fail", 0)], SKIP),
        ([*LOOKS * 12, *TIMERS, ("fail", 0)], retry(2, backoff=0.001, then=SKIP)),
    ],
    ids=["straight", "failing", "timers", "repeated"],
)
@pytest.mark.parametrize("seed", range(6))
def test_time_is_where_it_would_be_if_every_record_had_moved_it(doings: Any, errors: Any, seed: int) -> None:
    sent = events(random.Random(seed), 600, doings=doings)
    lazily, one_by_one = (
        results(strategy, sent, random.Random(seed), errors)
        for strategy in (BoundedOutOfOrderness(by=BOUND / 1000), OneByOne())
    )
    assert lazily == one_by_one
    assert any(value[0] == "ring" for _, value in lazily) == (("event", 5) in doings)


@pytest.mark.parametrize("seed", range(6))
def test_time_goes_as_far_if_handlers_wait(seed: int) -> None:
    rng = random.Random(seed)
    sent = events(rng, 600, doings=[*LOOKS * 5, *TIMERS, ("wait", 0), ("fail", 0)])
    with Bench(
        act,
        timers={"ring": ring},
        topic={"watermark": BoundedOutOfOrderness(by=BOUND / 1000)},
        service={"errors": SKIP},
        app={"partitions": 1},
    ) as bench:
        rows: list[NewRecord] = [(key.encode(), raw, at, ()) for key, at, raw in sent]
        bench.run(bench._append({TopicPartition("events", 0): rows}))
        bench.settle()
        read = [at for _, at, raw in sent if raw != BROKEN]
        assert bench.marker.watermark == max(read) - BOUND - 1
        done = [record.value[0] for record in bench.records(bench.out) if record.value[0] != "ring"]
        assert sorted(done) == sorted(at for _, at, raw in sent if raw != BROKEN and b"fail" not in raw)


def test_a_record_sees_the_watermark_of_earlier_records_and_not_its_own() -> None:
    async def look(ctx: Context, event: Any) -> None:
        ctx.emit([ctx.watermark, ctx.late])

    times = [START + at for at in (10, 11, 7, 30, 26, 27, 5)]
    with Bench(look, topic={"watermark": BoundedOutOfOrderness(by=BOUND / 1000)}, app={"partitions": 1}) as bench:
        bench.run(bench._append({TopicPartition("events", 0): [(b"a", b"0", at, ()) for at in times]}))
        bench.settle()
        highest = [max(times[:count], default=None) for count in range(len(times))]
        marks = [MIN_TIME if high is None else high - BOUND - 1 for high in highest]
        expected = [[mark, at <= mark] for mark, at in zip(marks, times, strict=True)]
        assert [record.value for record in bench.records(bench.out)] == expected
        assert bench.marker.watermark == START + 30 - BOUND - 1

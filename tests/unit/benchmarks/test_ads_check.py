"""The check of Yahoo's workload: counts only grow, final ones are exact and come once, windows do close."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from benchmarks.workloads.ads import GRACE, WINDOW, Ads, campaigns
from benchmarks.workloads.base import Verdict
from benchmarks.workloads.events import Counted

START = 1_800_000_000_000


@dataclass(frozen=True)
class Output:
    value: bytes
    timestamp: int


def output(campaign: str, window: int, count: int, *, last: bool, at: int) -> Output:
    return Output(msgspec.json.encode(Counted(campaign, window, count, last)), at)


@pytest.fixture(scope="module")
def ads() -> Ads:
    return Ads(events=120_000, partitions=4, start=START)


@pytest.fixture(scope="module")
def outputs(ads: Ads) -> list[Output]:
    """What a peer that handles 20 events a millisecond, and tells what changed every second, makes of them."""
    join, counts, made = campaigns(), dict[tuple[str, int], int](), list[Output]()
    changed: set[tuple[str, int]] = set()
    for number, (_, raw, at) in enumerate(ads.stream()):
        ad = msgspec.json.decode(raw)
        if ad["event_type"] == "view":
            item = join[ad["ad_id"]], at - at % WINDOW
            counts[item] = counts.get(item, 0) + 1
            changed.add(item)
        if number % 20_000 == 19_999:
            now = START + number // 20
            made += [output(*item, counts[item], last=False, at=now) for item in sorted(changed)]
            changed.clear()
            for item in [item for item in counts if item[1] + WINDOW + GRACE <= at]:
                made.append(output(*item, counts.pop(item), last=True, at=now))
    return made


def verdict(ads: Ads, outputs: list[Output], *, stopped: float | None = None, clock: bool = True) -> Verdict:
    check = ads.check(clock=clock)
    check.take(outputs)
    return check.verdict(stopped=stopped)


def test_right_outputs_are_complete(ads: Ads, outputs: list[Output]) -> None:
    found = verdict(ads, outputs)
    assert (found.complete, found.problem, found.handled) == (True, "", 120_000)
    assert ads.closing


def test_the_rate_is_that_of_the_events(ads: Ads, outputs: list[Output]) -> None:
    assert verdict(ads, outputs).rate == pytest.approx(20_000, rel=0.15)


def test_a_window_that_does_not_close_is_wrong(ads: Ads, outputs: list[Output]) -> None:
    left = [item for item in outputs if b'"final":true' not in item.value]
    assert "did not close" in verdict(ads, left).problem


def test_a_final_count_that_came_twice_is_wrong(ads: Ads, outputs: list[Output]) -> None:
    final = next(item for item in outputs if b'"final":true' in item.value)
    assert "after the final count" in verdict(ads, [*outputs, final]).problem


def test_a_final_count_that_lacks_a_view_is_wrong(ads: Ads) -> None:
    (campaign, window), count = next(iter(ads.counts.items()))
    assert "finally" in verdict(ads, [output(campaign, window, count - 1, last=True, at=START)], stopped=1.0).problem


def test_a_view_counted_twice_is_wrong(ads: Ads) -> None:
    (campaign, window), count = next(iter(ads.counts.items()))
    assert "there are" in verdict(ads, [output(campaign, window, count + 1, last=False, at=START)], stopped=1.0).problem


def test_a_count_that_falls_is_wrong(ads: Ads) -> None:
    campaign, window = next(iter(ads.counts))
    falling = [output(campaign, window, count, last=False, at=START) for count in (3, 2)]
    assert "came after" in verdict(ads, falling, stopped=1.0).problem


def test_counts_that_stop_before_the_end_are_wrong(ads: Ads, outputs: list[Output]) -> None:
    assert "expected" in verdict(ads, outputs[: len(outputs) // 2]).problem


def test_a_run_that_was_ended_is_right_as_far_as_it_got(ads: Ads, outputs: list[Output]) -> None:
    found = verdict(ads, outputs[: len(outputs) // 2], stopped=1.0)
    assert (found.complete, found.problem) == (False, "")


def test_a_peer_without_timers_may_owe_the_last_counts(ads: Ads, outputs: list[Output]) -> None:
    owed = {item for item in outputs if item.timestamp == outputs[-1].timestamp and b'"final":false' in item.value}
    left = [item for item in outputs if item not in owed]
    assert verdict(ads, left).problem
    assert verdict(ads, left, clock=False).problem == ""

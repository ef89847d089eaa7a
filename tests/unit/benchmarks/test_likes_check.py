"""The check of W: outputs that are not right are found, and the rate is that of the events behind the outputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest

from benchmarks.workloads.base import Verdict
from benchmarks.workloads.events import Count
from benchmarks.workloads.likes import Likes
from tidegate.keys import partition_of

START = 1_800_000_000_000


@dataclass(frozen=True)
class Output:
    value: bytes
    timestamp: int

    def at(self, moment: int) -> Output:
        return replace(self, timestamp=moment)


@pytest.fixture(scope="module")
def likes() -> Likes:
    return Likes(events=20_000, keys=500, partitions=4, start=START)


@pytest.fixture(scope="module")
def outputs(likes: Likes) -> list[Output]:
    """What a peer that handles ten events a millisecond makes of them."""
    seen: dict[bytes, int] = {}
    made = []
    for number, (key, _, _) in enumerate(likes.stream()):
        seen[key] = n = seen.get(key, 0) + 1
        if n % 2 == 0:
            made.append(Output(msgspec.json.encode(Count(key.decode(), n)), START + number // 10))
    return made


def verdict(likes: Likes, outputs: list[Output], *, stopped: float | None = None) -> Verdict:
    check = likes.check(clock=True)
    check.take(outputs)
    return check.verdict(stopped=stopped)


def test_right_outputs_are_complete(likes: Likes, outputs: list[Output]) -> None:
    found = verdict(likes, outputs)
    assert (found.complete, found.problem, found.outputs, found.handled) == (True, "", len(outputs), 20_000)


def test_the_rate_is_that_of_the_events(likes: Likes, outputs: list[Output]) -> None:
    assert verdict(likes, outputs).rate == pytest.approx(10_000, rel=0.03)


def test_the_first_second_of_a_long_run_is_left_out(likes: Likes, outputs: list[Output]) -> None:
    """A second for the first thousand events, then ten of two thousand each."""
    slow = [output.at(START + (output.timestamp - START) * 5) for output in outputs]
    found = verdict(likes, slow)
    assert found.start == pytest.approx(slow[0].timestamp / 1000 + 1)
    assert found.rate == pytest.approx(2000, rel=0.03)


def test_an_output_that_came_twice_is_wrong(likes: Likes, outputs: list[Output]) -> None:
    assert "came after" in verdict(likes, [*outputs, outputs[-1]]).problem


@pytest.mark.parametrize("place", [0, 4000, -1])
def test_an_output_that_is_missing_is_wrong(likes: Likes, outputs: list[Output], place: int) -> None:
    left = [output for output in outputs if output is not outputs[place]]
    assert verdict(likes, left).problem


def test_outputs_of_a_key_out_of_order_are_wrong(likes: Likes, outputs: list[Output]) -> None:
    assert "came after" in verdict(likes, outputs[::-1]).problem


def test_no_output_is_wrong(likes: Likes) -> None:
    assert verdict(likes, []).problem == "no output"


def test_a_run_that_was_ended_is_right_as_far_as_it_got(likes: Likes, outputs: list[Output]) -> None:
    half = [output.at(START + (output.timestamp - START) * 10) for output in outputs[: len(outputs) // 2]]
    found = verdict(likes, half, stopped=half[-1].timestamp / 1000)
    assert (found.complete, found.problem) == (False, "")
    assert found.handled == pytest.approx(10_000, rel=0.05)


def test_a_run_that_was_ended_may_lack_only_what_was_under_way(likes: Likes, outputs: list[Output]) -> None:
    half = [output.at(START + (output.timestamp - START) * 50) for output in outputs[: len(outputs) // 2]]
    stopped = half[-1].timestamp / 1000
    last = {msgspec.json.decode(output.value)["who"]: output for output in half}
    late = next(output for output in half if output in last.values() and output.timestamp / 1000 > stopped - 1)
    early = next(output for output in half if output in last.values() and output.timestamp / 1000 < stopped - 4)
    assert verdict(likes, [output for output in half if output is not late], stopped=stopped).problem == ""
    assert "is missing" in verdict(likes, [output for output in half if output is not early], stopped=stopped).problem


def test_events_are_where_a_java_producer_puts_them(likes: Likes) -> None:
    assert [len(numbers) for numbers in likes.order] == [
        sum(partition_of(key, 4) == number for key, _, _ in likes.stream()) for number in range(4)
    ]

"""From a record to its timestamp, and to the watermark of its channel: one assigner per input partition."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate import (
    MIN_TIME,
    BoundedOutOfOrderness,
    BrokerTime,
    EventTime,
    IngestionTime,
    Monotonic,
    ProcessingTime,
    Punctuated,
)
from tidegate.logs.base import TopicPartition
from tidegate.time.clock import ManualClock
from tidegate.time.combined_watermark import CombinedWatermark, OutsideChannel
from tidegate.time.watermark_assigner import WatermarkAssigner
from tidegate.time.watermarks import WatermarkStrategy

NOW = 1_700_000_000_000
SOURCE = TopicPartition("events", 0)
OTHER = TopicPartition("events", 1)


def channel(strategy: WatermarkStrategy) -> OutsideChannel:
    return OutsideChannel(bound=strategy.bound, generator=strategy.generator(), idle_ms=None)


def assigner(time: Any, strategy: WatermarkStrategy | None, *, channels: int = 1) -> WatermarkAssigner:
    outside = {} if strategy is None else {SOURCE: channel(strategy)}
    if strategy is not None and channels > 1:
        outside[OTHER] = channel(strategy)
    return WatermarkAssigner(time, outside.get(SOURCE), ManualClock(NOW), CombinedWatermark(outside, {}))


@pytest.mark.parametrize(
    ("source", "timestamp"),
    [(EventTime(), 5), (BrokerTime(), 5), (EventTime("at"), NOW - 1), (IngestionTime(), NOW), (ProcessingTime(), NOW)],
)
def test_the_time_is_that_of_the_record_or_of_its_source(source: Any, timestamp: int) -> None:
    assert assigner(source, Monotonic()).timestamp({"at": NOW - 1}, 5) == timestamp


def test_inside_of_an_app_ingestion_time_is_kept() -> None:
    assert assigner(IngestionTime(), None).timestamp({}, 5) == 5


def test_a_bound_is_taken_from_the_timestamp() -> None:
    bounded = assigner(EventTime(), BoundedOutOfOrderness(by=3))
    assert (bounded.lead, bounded.generator) == (3001, None)
    assert bounded.watermark(10_000, None) == 6_999


def test_a_generator_sees_the_values() -> None:
    punctuated = assigner(EventTime(), Punctuated(mark=lambda value, timestamp: value))
    assert punctuated.lead is None
    assert [punctuated.watermark(9, value) for value in (3, None, 7, 5)] == [3, 3, 7, 7]


def test_without_a_channel_records_move_no_watermark() -> None:
    inside = assigner(EventTime(), None)
    assert inside.watermark(9, None) == MIN_TIME
    assert not inside.raises(9)


def test_only_a_higher_watermark_moves_the_channel() -> None:
    bounded = assigner(EventTime(), Monotonic())
    assert [bounded.raises(mark) for mark in (3, 2, 3, 4)] == [True, False, False, True]
    assert bounded.channel is not None
    assert bounded.channel.watermark == 4


def test_records_end_idleness() -> None:
    bounded = assigner(EventTime(), Monotonic())
    assert bounded.channel is not None
    bounded.channel.idle = True
    bounded.received()
    assert not bounded.channel.idle
    assert bounded.channel.active_at is not None


@pytest.mark.parametrize(
    ("time", "strategy", "channels", "reached"),
    [
        (EventTime(), Monotonic(), 1, 8),
        (EventTime(), Monotonic(), 2, None),
        (EventTime("at"), Monotonic(), 1, None),
        (EventTime(), Punctuated(mark=lambda value, timestamp: value), 1, None),
        (EventTime(), None, 1, None),
    ],
    ids=["the only channel", "one of two", "time in the value", "a generator", "no channel"],
)
def test_records_are_followed_if_their_timestamps_say_it_all(
    time: Any, strategy: WatermarkStrategy | None, channels: int, reached: int | None
) -> None:
    assert assigner(time, strategy, channels=channels).follow([3, 9, 4], iter([1, 2, 3])) == reached

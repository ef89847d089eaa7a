"""Faust's consumer commits what is handled, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from faust.types import TP

from tidegate import App
from tidegate.faust_host.transport import Consumer, Transport

TOPIC = TP("t", 0)


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    app = App("app", broker="kafka://nowhere:1")
    app.faust.connect_faust()
    made = app.faust.consumer
    assert isinstance(made, Consumer)
    assert isinstance(app.faust.transport, Transport)
    yield made
    made.release()


def committable(consumer: Any, *acked: int) -> int | None:
    consumer._acked[TOPIC].extend(acked)
    found: int | None = consumer._new_offset(TOPIC)
    return found


async def test_offsets_without_a_record_are_not_waited_for(consumer: Consumer) -> None:
    await consumer._add_gap(TOPIC, 6, 9)  # 5 was read, then 9
    assert committable(consumer, 5) == 6
    assert committable(consumer, 9) == 10


async def test_the_record_behind_a_gap_is_waited_for(consumer: Consumer) -> None:
    await consumer._add_gap(TOPIC, 6, 9)
    assert committable(consumer, 5, 10) == 9  # 10 was handled before 9
    assert committable(consumer, 9) == 11


async def test_no_offset_is_committed_once_agents_may_be_cancelled(consumer: Consumer) -> None:
    committed: list[Any] = []

    async def note(topics: Any, **_: Any) -> bool:
        committed.append(topics)
        return True

    consumer.force_commit = note
    assert await consumer.commit()
    await consumer.finish()
    assert not await consumer.commit()
    assert len(committed) == 2


async def test_the_flow_stays_paused_between_a_seek_and_the_end_of_a_rebalance(consumer: Consumer) -> None:
    async def nowhere() -> dict[TP, int]:
        assert not consumer.flow_active
        return {TOPIC: 5}

    consumer.resume_flow()
    consumer.seek_to_committed = nowhere  # type: ignore[method-assign]
    await consumer.perform_seek()
    assert not consumer.flow_active
    assert consumer._read_offset[TOPIC] == 5

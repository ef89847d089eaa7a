"""Turns of the event loop: one per caller, in order."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from tidegate.engine.runtime.loop_scheduler import LoopScheduler


async def _count_turns(turns: list[int]) -> None:
    while True:
        turns[0] += 1
        await asyncio.sleep(0)


async def test_a_caller_gets_a_turn_and_other_work_the_next_one() -> None:
    turns, count, went = LoopScheduler(), [0], list[tuple[int, str]]()

    async def work(name: str) -> None:
        for _ in range(3):
            await turns.next()
            went.append((count[0], name))

    counting = asyncio.ensure_future(_count_turns(count))
    await asyncio.gather(*map(work, "abc"))
    counting.cancel()

    assert [name for _, name in went] == list("abcabcabc")
    assert all(later - earlier >= 2 for (earlier, _), (later, _) in pairwise(went))


async def test_a_cancelled_caller_blocks_no_other() -> None:
    turns = LoopScheduler()
    first, second = asyncio.ensure_future(turns.next()), asyncio.ensure_future(turns.next())
    await asyncio.sleep(0)
    first.cancel()

    await asyncio.wait_for(second, 1)
    await asyncio.wait_for(turns.next(), 1)  # nor does it stop the next ones

from __future__ import annotations

import asyncio

from tidegate.owner_rpc.rwlock import RWLock


async def test_many_pass_together() -> None:
    lock = RWLock()
    async with lock.shared(), lock.shared():
        pass


async def test_an_exclusive_holder_waits_for_shared_ones_and_blocks_new_ones() -> None:
    lock = RWLock()
    seen: list[str] = []

    async def alone() -> None:
        async with lock.exclusive():
            seen.append("alone")
            await asyncio.sleep(0)
            seen.append("still alone")

    async def late() -> None:
        async with lock.shared():
            seen.append("late")

    async with lock.shared():
        waiting = asyncio.create_task(alone())
        await asyncio.sleep(0)
        behind = asyncio.create_task(late())
        await asyncio.sleep(0)
        seen.append("first")
    await asyncio.gather(waiting, behind)

    assert seen == ["first", "alone", "still alone", "late"]


async def test_a_failure_inside_opens_the_gate() -> None:
    lock = RWLock()
    for enter in (lock.exclusive, lock.shared):
        try:
            async with enter():
                raise RuntimeError
        except RuntimeError:
            pass
    async with asyncio.timeout(1), lock.exclusive():
        pass

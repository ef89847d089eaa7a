"""The ready-made services on a real worker, by their own methods."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidegate import App
from tidegate_services import Counters, Deduplicator, RateLimiter, SessionTracker, Standing


async def test_all_of_them_share_an_app(tmp_path: Path) -> None:
    app = App("ready", data=tmp_path, partitions=2)
    limiter = RateLimiter(app, rate=0.001, burst=2)
    deduplicator = Deduplicator(app, within=3600)
    tracker = SessionTracker(app, gap=3600)
    counters = Counters(app, every=0.05)
    await app.host.start()
    run = asyncio.create_task(app.host.run())
    try:
        decisions = [(await limiter.acquire("ann", timeout=60)).allowed for _ in range(3)]
        assert decisions == [True, True, False]
        verdicts = [(await deduplicator.offer("orders", "1", timeout=60)).first for _ in range(2)]
        assert verdicts == [True, False]
        assert (await tracker.touch("ann", timeout=60)).events == 1
        assert (await tracker.current("ann", timeout=60)) is not None
        assert (await tracker.close("ann", timeout=60)) is not None
        assert (await tracker.current("ann", timeout=60)) is None
        assert await counters.add("ann", 3, timeout=60) == 3
        assert await counters.count("ann", timeout=60) == 3
        async with asyncio.timeout(60):
            while await counters.top(timeout=60) != [Standing("ann", 3)]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await app.host.stop()

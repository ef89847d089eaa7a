"""The workloads with Faust: agents with a dict or a Table, at least once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import faust

WINDOW, GRACE = int(os.environ["BENCH_WINDOW_MS"]), int(os.environ["BENCH_GRACE_MS"])
PARTITIONS = int(os.environ["BENCH_PARTITIONS"])


class Like(faust.Record, serializer="json"):
    liker: str
    liked: str
    ts: int


class Count(faust.Record, serializer="json"):
    who: str
    n: int


class Ad(faust.Record, serializer="json"):
    ad_id: str
    event_type: str
    event_time: int


class View(faust.Record, serializer="json"):
    campaign: str
    at: int


app = faust.App(
    os.environ["BENCH_ID"],
    broker=f"kafka://{os.environ['BENCH_BROKER']}",
    datadir=os.environ["BENCH_DATA"],
    # the RocksDB driver of the other peers
    store="rocksdb://?driver=rocksdict",
    topic_partitions=PARTITIONS,
    consumer_auto_offset_reset="earliest",
    # without a linger every output is a request of its own, which halves the throughput
    producer_linger=0.05 if os.environ["BENCH_AIM"] == "throughput" else 0,
    web_enabled=False,
    topic_disable_leader=True,
)
output = app.topic(os.environ["BENCH_OUTPUT"], key_type=str, key_serializer="raw", partitions=4)


def likes() -> None:
    source = app.topic(os.environ["BENCH_INPUT"], key_type=str, value_type=Like, partitions=PARTITIONS)
    counters: Any = app.Table("counters", default=int) if os.environ.get("BENCH_STATE") == "table" else {}

    @app.agent(source)
    async def counter(stream: Any) -> None:
        async for like in stream:
            counters[like.liked] = n = counters.get(like.liked, 0) + 1
            if n % 2 == 0:
                await output.send(key=like.liked, value=Count(like.liked, n))


def ads() -> None:
    """A table of the open windows of each campaign; a timer of the app sends, every second, what changed."""
    campaigns = json.loads(Path(os.environ["BENCH_CAMPAIGNS"]).read_text())
    source = app.topic(os.environ["BENCH_INPUT"], key_type=str, value_type=Ad, partitions=PARTITIONS)
    views = app.topic(
        f"{os.environ['BENCH_ID']}-views", key_type=str, value_type=View, partitions=PARTITIONS, internal=True
    )
    windows: Any = app.Table("windows", default=dict)
    changed: set[tuple[str, int]] = set()
    times: dict[str, int] = {}

    @app.agent(source)
    async def join(stream: Any) -> None:
        async for ad in stream:
            if ad.event_type == "view":
                campaign = campaigns[ad.ad_id]
                await views.send(key=campaign, value=View(campaign, ad.event_time))

    @app.agent(views)
    async def counter(stream: Any) -> None:
        async for view in stream:
            campaign, window = view.campaign, view.at - view.at % WINDOW
            time = times.get(campaign, 0)
            if window + WINDOW + GRACE <= time:
                continue
            counts = windows[campaign]
            fresh = str(window) not in counts
            counts[str(window)] = counts.get(str(window), 0) + 1
            changed.add((campaign, window))
            times[campaign] = max(time, view.at)
            over = [item for item in counts if int(item) + WINDOW + GRACE <= view.at] if fresh else []
            for item in over:
                changed.discard((campaign, int(item)))
                await send(campaign, int(item), counts.pop(item), last=True)
            windows[campaign] = counts

    @app.timer(1.0)  # type: ignore[untyped-decorator]
    async def tell() -> None:
        due = sorted(changed)
        changed.clear()
        for campaign, window in due:
            if str(window) in windows[campaign]:
                await send(campaign, window, windows[campaign][str(window)], last=False)


async def send(campaign: str, window: int, count: int, *, last: bool) -> None:
    value = {"campaign": campaign, "window": window, "count": count, "final": last}
    await output.send(key=campaign, value=value)


(ads if os.environ["BENCH_WORKLOAD"] == "yahoo" else likes)()

if __name__ == "__main__":
    sys.argv[1:] = ["--loop=uvloop", "worker", "--loglevel=warn", "--without-web"]
    app.main()

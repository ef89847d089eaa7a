"""How fast Spark reads an embedded log and a savepoint, and writes a savepoint: on two cores, with a warm session.

python -m benchmarks.spark [--records 1000000] [--keys 1000000]      prints a line of JSON for each
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tidegate import App, Context, ValueState
from tidegate.engine.topology.plan import Plan
from tidegate.host.host import open_log
from tidegate.keys import partition_of
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.time.clock import SystemClock
from tidegate_spark import open_session, read_state, read_topic, write_savepoint

__all__ = ("main",)


class Like(msgspec.Struct):
    id: int
    liker: str
    liked: str
    at: int


class Count(msgspec.Struct):
    likes: int
    last: str


app = App("sparkbench", partitions=4)
likes = app.topic("likes", value_type=Like, key="liker")


@app.process(likes)
async def counter(ctx: Context, like: Like, counts: ValueState[Count | None]) -> None:
    """Only its state is of interest here."""


async def fill(directory: Path, records: int) -> None:
    settings = app.define().resolve({"data": directory}).settings
    log = open_log("sparkbench", settings, SystemClock())
    await log.start()
    definition = app.define()
    plan = Plan(definition.id, definition.services, definition.topics, settings, await log.topics())
    await log.create(plan.specs)
    writer = await log.writer()
    stamp = (("tidegate", b"sparkbench|1|other.0|0"),)
    for start in range(0, records, 20_000):
        batch: dict[TopicPartition, list[NewRecord]] = {}
        for number in range(start, start + 20_000):
            key = b"person-%d" % (number % 50_000)
            value = b'{"id":%d,"liker":"%s","liked":"person-%d","at":%d}' % (number, key, number * 7 % 50_000, number)
            target = TopicPartition("likes", partition_of(key, 4))
            batch.setdefault(target, []).append((key, value, number, stamp))
        await writer.append(batch)
    await writer.close()
    await log.stop()


def timed(name: str, count: int, call: Callable[[], Any]) -> None:
    """The second of two runs: Spark compiles its code in the first."""
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    best = seconds[-1]
    print(json.dumps({"what": name, "count": count, "seconds": round(best, 2), "per_second": round(count / best)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    given = parser.parse_args()
    spark = open_session("bench", master="local[2]", options={"spark.ui.enabled": "false"})
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        flags = {"data": directory}
        asyncio.run(fill(directory, given.records))
        frame = read_topic(spark, app, "likes", flags=flags)
        timed("embedded log, raw records", given.records, lambda: frame.selectExpr("max(offset)").collect())
        timed("embedded log, typed values", given.records, lambda: frame.selectExpr("sum(value.at)").collect())
        counts = spark.range(given.keys).selectExpr(
            "concat('person-', id) as key", "named_struct('likes', id, 'last', concat('x', id)) as value"
        )
        made = iter(range(100))
        timed(
            "savepoint, written",
            given.keys,
            lambda: write_savepoint(
                spark, app, f"{directory}/savepoints/s{next(made)}", {"counter": {"counts": counts}}, flags=flags
            ),
        )
        state = read_state(spark, f"{directory}/savepoints/s0", "counter", "counts", app=app)
        timed("savepoint, typed state", given.keys, lambda: state.selectExpr("sum(value.likes)").collect())
        assert state.count() == given.keys
    spark.stop()


if __name__ == "__main__":
    main()

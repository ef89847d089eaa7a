"""How long a restore to another parallelism takes: python -m benchmarks.rescaling [--keys 1000000] [--broker URL]

1. A counter for each of N keys, in 4 tasks, by events through a worker. 2. A savepoint. 3. A restore to 8 tasks: fetch,
load, begin. 4. A worker of the new run opens its tasks, and every key has its value.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from tidegate import App, Context, Default, ValueState
from tidegate.checkpoints.restore.restore import RestoreOptions
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage
from tidegate.checkpoints.storage.reader import open_checkpoint
from tidegate.client.log_access import LogAccess
from tidegate.directories import checkpoint_url
from tidegate.host.host import Host
from tidegate.keys import encode_key, partition_of
from tidegate.logs.base import TopicPartition

__all__ = ("main",)

_BATCH = 20_000


def make_app(partitions: int) -> App:
    app = App("rescaled")
    events = app.topic("events", value_type=int, key_type=int, partitions=partitions)

    @app.process(events)
    async def counter(ctx: Context, event: int, seen: Annotated[ValueState[int], Default(0)]) -> None:
        seen.value += event

    return app


@contextmanager
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    """Wall clock and CPU time of all threads: on a busy machine CPU time is more meaningful."""
    began, worked = time.perf_counter(), time.process_time()
    yield
    seconds[what] = time.perf_counter() - began
    print(f"{what:<32} {seconds[what]:>8.2f} s {time.process_time() - worked:>8.2f} s CPU", flush=True)


async def fill(host: Host, keys: int, partitions: int) -> None:
    writer = await host.log.writer()
    for start in range(0, keys, _BATCH):
        records: dict[TopicPartition, list[Any]] = {}
        for number in range(start, min(keys, start + _BATCH)):
            key = encode_key(number)
            target = TopicPartition("events", partition_of(key, partitions))
            records.setdefault(target, []).append((key, b"%d" % (number + 1), 1_700_000_000_000, ()))
        await writer.append(records)
    await writer.close()


def _handled(host: Host) -> Iterator[tuple[TopicPartition, int]]:
    return ((source, input_.handled) for task in host.tasks.values() for source, input_ in task.inputs.items())


async def run(keys: int, before: int, after: int, flags: dict[str, Any]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    app = make_app(before)
    host = Host(app.define, flags=flags)
    await host.start()
    working = asyncio.ensure_future(host.run())
    with timed(f"{keys:,} keys in {before} tasks", seconds):
        await fill(host, keys, before)
        ends = await host.log.end_offsets([TopicPartition("events", number) for number in range(before)])
        while any(handled < ends[source] for source, handled in _handled(host)):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.1)
    with timed("savepoint", seconds):
        await host.checkpoint("cut", stop=True)
    await working
    await host.stop()
    definition = app.define()
    access = LogAccess(definition, flags)
    reader = open_checkpoint(CheckpointStorage(checkpoint_url(definition.id, access.settings), definition.id), "cut")
    async with access.opened():
        with timed(f"restore to {after} tasks", seconds):
            options = RestoreOptions(partitions={None: after})
            restored = await access.restore(reader, options, lambda *_: None)
    loaded = restored.loaded
    print(f"{loaded.bytes / 1e6:.1f} MB loaded, {loaded.moved / 1e6:.1f} MB of it into other tasks")
    again = Host(app.define, flags=flags)
    with timed("the new run's tasks open", seconds):
        await again.start()
    print(f"recovered {again.recovered_keys}, {len(again.tasks)} tasks")
    await again.stop()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--before", type=int, default=4)
    parser.add_argument("--after", type=int, default=8)
    parser.add_argument("--broker", default="embedded://")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        flags = {"data": Path(directory), "broker": given.broker, "drain_seconds": 1.0}
        seconds = asyncio.run(run(given.keys, given.before, given.after, flags))
    whole = seconds[f"restore to {given.after} tasks"] + seconds["the new run's tasks open"]
    print(f"rescale {given.before} to {given.after} of {given.keys:,} keys: {whole:.1f} s")


if __name__ == "__main__":
    main()

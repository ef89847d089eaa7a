"""A process that owns an embedded log, and appends to it until it is killed: python -m tests.faults.embedded_owner DIR

Transaction n goes to both partitions of `plain`, which keep everything, to `state`, which is compacted, and to `brief`,
which is not kept for long. It prints `ack n` when n is acknowledged. `check` says whether what is left is right.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from functools import cache
from pathlib import Path

from tests.contract.logs import Readable, read_all
from tidegate.logs.base import NewRecord, TopicPartition, TopicSpec
from tidegate.logs.embedded import EmbeddedLog, EmbeddedOptions

__all__ = ("OPTIONS", "check")

PLAIN = (TopicPartition("plain", 0), TopicPartition("plain", 1))
STATE = TopicPartition("state", 0)
BRIEF = TopicPartition("brief", 0)
TOPICS = (
    TopicSpec(name="plain", partitions=2),
    TopicSpec(name="state", partitions=1, compact=True, tombstone_ms=50),
    TopicSpec(name="brief", partitions=1, retention_bytes=50_000),
)
OPTIONS = EmbeddedOptions(
    write_buffer_bytes=128 << 10,
    block_records=16,
    clean_records=60,
    clean_keys=40,
    clean_step=24,
    reclaim_bytes=256 << 10,
    maintenance_interval=0.01,
)
Changes = dict[str, str | None]


@cache
def changes_of(number: int) -> Changes:
    """What transaction n does to the state. A function of n, so that checks can repeat it."""
    chance = random.Random(number)
    keys = [f"key-{chance.randrange(100)}" for _ in range(chance.randrange(1, 12))]
    return {key: None if chance.random() < 0.1 else f"{number}-{'x' * chance.randrange(60)}" for key in keys}


def transaction(number: int) -> dict[TopicPartition, list[NewRecord]]:
    padding = random.Random(number).randbytes(random.Random(number).randrange(2000)).hex()
    text = json.dumps([number, padding]).encode()
    state: list[NewRecord] = [
        (key.encode(), None if value is None else value.encode(), 0, ()) for key, value in changes_of(number).items()
    ]
    plain: list[NewRecord] = [(None, text, 0, ())] * (number % 20 + 1)
    return {PLAIN[0]: plain, PLAIN[1]: plain, STATE: state, BRIEF: [(None, text, 0, ())]}


async def check(log: Readable, acknowledged: int) -> int:
    """Every acknowledged transaction is there; each one that is there is whole. Returns the last one's number."""
    numbers = []
    for source in PLAIN:
        found = [json.loads(record.value or b"")[0] for record in await read_all(log, source)]
        last = found[-1] if found else 0
        assert found == [number for number in range(1, last + 1) for _ in range(number % 20 + 1)]
        numbers.append(last)
    assert numbers[0] == numbers[1] >= acknowledged
    state: Changes = {}
    for number in range(1, numbers[0] + 1):
        state |= changes_of(number)
    found_state = {
        (record.key or b"").decode(): None if record.value is None else record.value.decode()
        for record in await read_all(log, STATE)
    }
    living = {key: value for key, value in state.items() if value is not None}
    assert {key: value for key, value in found_state.items() if value is not None} == living
    assert found_state.keys() <= state.keys()
    brief = [json.loads(record.value or b"")[0] for record in await read_all(log, BRIEF)]
    assert brief == list(range(numbers[0] - len(brief) + 1, numbers[0] + 1))
    return numbers[0]


async def main(directory: Path) -> None:
    log = EmbeddedLog(directory, options=OPTIONS)
    await log.start()
    await log.create(TOPICS)
    writer = await log.writer("owner")
    number = await check(log, 0)
    os.write(1, b"started\n")
    while True:
        number += 1
        await writer.append(transaction(number))
        os.write(1, b"ack %d\n" % number)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

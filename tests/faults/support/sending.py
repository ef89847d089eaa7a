"""A producer outside of the app that keeps sending while workers start and stop, and during broker outages."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType

import msgspec

from tests.faults.support.kafka import KafkaWorld
from tidegate.engine.topology.plan import Plan
from tidegate.errors import LogUnavailableError
from tidegate.logs.base import Log, NewRecord, TopicPartition, Writer

__all__ = ("Sending",)


class Sending:
    """Sends batches of values to a topic, in a thread of its own, as long as it is entered or until there are no more.

    A batch of which no acknowledgement came may be in the log, or a part of it, or not: it is not sent again. What is
    in the log is the truth. Records are stamped with the time at which they are sent: a broker that starts again has
    forgotten producers whose records are old, and takes what they send once more for something new."""

    def __init__(
        self, world: KafkaWorld, topic: str, batches: Iterator[Sequence[msgspec.Struct]], *, pause: float = 0.02
    ) -> None:
        """`pause`: seconds between two batches, on average."""
        self._world, self._topic, self._batches, self._pause = world, topic, batches, pause
        self._dice = random.Random(world.seed)
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged = 0
        """Values that are known to be in the log."""
        self.doubtful = 0
        """Values of which that is not known."""

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """In the middle of a batch, perhaps. Raises what made sending impossible."""
        self._over.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the sender does not end"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._world.with_log(self._send_until_stopped)
        except BaseException as error:
            self._failure = error

    async def _send_until_stopped(self, log: Log, plan: Plan) -> None:
        sending = asyncio.ensure_future(self._send_all(log, plan))
        while not sending.done() and not self._over.is_set():
            await asyncio.wait((sending,), timeout=0.1)
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending

    async def _send_all(self, log: Log, plan: Plan) -> None:
        await log.create(plan.specs)
        writer: Writer | None = None
        for batch in self._batches:
            try:
                writer = writer or await log.writer()
                await writer.append(self._records(plan, batch))
                self.acknowledged += len(batch)
            except LogUnavailableError:
                writer = None
                self.doubtful += len(batch)
            await asyncio.sleep(self._pause * 2 * self._dice.random())

    def _records(self, plan: Plan, batch: Sequence[msgspec.Struct]) -> dict[TopicPartition, list[NewRecord]]:
        topic, now = plan.topics[self._world.real_name(plan, self._topic)], time.time_ns() // 1_000_000
        records: dict[TopicPartition, list[NewRecord]] = {}
        for value in batch:
            key = topic.key_of(value)
            target = TopicPartition(topic.name, topic.partition_for(key or b""))
            records.setdefault(target, []).append((key, msgspec.json.encode(value), now, ()))
        return records

"""Worlds on a real broker: any number of workers at a time, each of them killed, stopped and started as a process."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.faults.support.points import ON_KAFKA
from tests.faults.support.processes import WorkerProcess, Zygote
from tests.faults.support.world import World
from tidegate.engine.topology.plan import Plan
from tidegate.logs.base import Log, LogRecord, TopicPartition
from tidegate.logs.kafka import KafkaLog
from tidegate.settings_resolution import resolve

__all__ = ("SESSION", "KafkaWorld")

SESSION = 2.0
"""After so many seconds without a sign of a worker, its tasks go to others."""
SETTLE = 15.0
"""How long the markers of a transaction that was decided may take to reach its partitions, in seconds."""


class KafkaWorld(World):
    """One worker at a time has a name that lasts, so that the next one need not wait until the group misses it."""

    points = ON_KAFKA
    flags: Mapping[str, Any] = {"retention_hours": 0.0}  # brokers delete what is old by its timestamps

    def __init__(
        self,
        directory: Path,
        zygote: Zygote,
        app: str,
        seed: int,
        *,
        broker: str,
        alone: bool = False,
        partitions: int = 0,
        **environment: str,
    ) -> None:
        """`broker`: kafka://HOST:PORT. `alone`: no other test uses it, so that the app can have its own name there.
        `partitions`: of each topic, if the app does not say it right."""
        self.broker = broker
        self.prefix = "" if alone else f"w{uuid.uuid4().hex[:10]}-"
        if partitions:
            self.flags = {**self.flags, "partitions": partitions}
            environment["TIDEGATE_PARTITIONS"] = str(partitions)
        settings = {
            "TIDEGATE_BROKER": broker,
            "TIDEGATE_KAFKA_SESSION_TIMEOUT": str(SESSION),
            "TIDEGATE_RETENTION_HOURS": "0",
        }
        super().__init__(directory, zygote, app, seed, **{**settings, **environment})

    def new_log(self) -> KafkaLog:
        settings = resolve({}, {"broker": self.broker}, {}).settings
        return KafkaLog(settings.broker, settings)

    def owners(self) -> list[Path]:
        return sorted(self.data.glob("worker-*/stores"))

    # -- workers -----------------------------------------------------------------------------------------------------
    def live(
        self,
        faults: str = "",
        *,
        until_end: bool = True,
        feed: str = "",
        environment: Mapping[str, str] | None = None,
        name: str = "alone",
    ) -> WorkerProcess:
        """Start a worker. `name`: its kafka_instance, which is kept over restarts; empty: none."""
        variables = {"TIDEGATE_KAFKA_INSTANCE": name, **(environment or {})}
        return super().live(faults, until_end=until_end, feed=feed, environment=variables)

    def join(self, faults: str = "", **environment: str) -> WorkerProcess:
        """Start one of several workers, which runs until it is stopped."""
        return self.live(faults, until_end=False, environment=environment, name="")

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 40) -> None:
        """Wait until the workers that live have come so far."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(self.with_seed(f"{what}: not within {seconds:g} s\n{self._last_output()}"))
            time.sleep(0.02)

    def _last_output(self) -> str:
        alive = [life for life in self.lives if not life.over] or self.lives[-1:]
        return "\n".join(f"-- process {life.pid}:\n{life.output[-1500:]}" for life in alive)

    def delete_topics(self) -> None:
        """Leave nothing on a broker that others use."""
        self.with_log(_delete)

    # -- the log -----------------------------------------------------------------------------------------------------
    def configure(self, topic: str, **configs: str) -> None:
        """Say how a topic is kept, for example max_message_bytes='2000'; it is made first if need be. All that is not
        said is as the broker wants it, except that nothing is deleted for its age."""

        async def use(log: Log, plan: Plan) -> None:
            await log.create(plan.specs)
            named = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in configs.items()}}
            resource = ConfigResource(ConfigResourceType.TOPIC, self.real_name(plan, topic), configs=named)
            async with self._admin() as admin:
                await admin.alter_configs([resource])

        self.with_log(use)

    def add_partitions(self, topic: str, total: int) -> None:
        async def use(log: Log, plan: Plan) -> None:
            async with self._admin() as admin:
                await admin.create_partitions({self.real_name(plan, topic): NewPartitions(total)})

        self.with_log(use)

    def _consumer(self, **options: Any) -> Any:
        return AIOKafkaConsumer(bootstrap_servers=self.broker.removeprefix("kafka://"), **options)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.broker.removeprefix("kafka://"))
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def read(self, log: Log, sources: Sequence[TopicPartition]) -> dict[TopicPartition, list[LogRecord]]:
        """As others see it: by aiokafka's consumer, which knows by itself what was aborted. What our own reader took
        for committed, and was not, would otherwise go unnoticed on both sides."""
        ends = await log.end_offsets(sources)
        wanted = [KafkaPartition(*source) for source in sources]
        found: dict[TopicPartition, list[LogRecord]] = {source: [] for source in sources}
        async with self._consumer(isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign(wanted)
            await consumer.seek_to_beginning(*wanted)
            for partition in wanted:
                source = TopicPartition(partition.topic, partition.partition)
                while await consumer.position(partition) < ends[source]:
                    for at, records in (await consumer.getmany(timeout_ms=200)).items():
                        found[TopicPartition(at.topic, at.partition)] += records
        return found

    async def undecided(self, log: Log, sources: Sequence[TopicPartition]) -> list[TopicPartition]:
        deadline = time.monotonic() + SETTLE
        while True:
            stable, high = await log.end_offsets(sources), await self._high_watermarks(sources)
            found = [source for source in sources if stable[source] < high[source]]
            if not found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.1)

    async def _high_watermarks(self, sources: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks of partitions, open transactions included."""
        async with self._consumer() as consumer:
            found = await consumer.end_offsets([KafkaPartition(*source) for source in sources])
            return {TopicPartition(source.topic, source.partition): end for source, end in found.items()}


async def _delete(log: Log, plan: Plan) -> None:
    await log.delete([spec.name for spec in plan.specs])

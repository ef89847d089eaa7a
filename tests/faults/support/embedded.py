"""Worlds on an embedded log, which is in the data directory and has one owner at a time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from tests.faults.support.points import ON_EMBEDDED
from tests.faults.support.world import World, read_all
from tidegate.engine.topology.plan import Plan
from tidegate.logs.base import Log, TopicPartition
from tidegate.logs.embedded import EmbeddedLog, LogObserver

__all__ = ("EmbeddedWorld",)


class EmbeddedWorld(World):
    points = ON_EMBEDDED

    def new_log(self) -> EmbeddedLog:
        return EmbeddedLog(self.data)

    def owners(self) -> list[Path]:
        return [self.data / "stores"]

    def observed(self, topic: str) -> int:
        async def look() -> int:
            observer = LogObserver(self.data)
            await observer.start()
            try:
                sources = [TopicPartition(topic, n) for n in range((await observer.topics())[topic].partitions)]
                return sum([len(records) for records in (await read_all(observer, sources)).values()])
            finally:
                await observer.stop()

        return asyncio.run(look())

    def clean(self) -> None:
        """Compact all that can be compacted."""

        async def use(log: Log, plan: Plan) -> None:
            assert isinstance(log, EmbeddedLog)
            await log.clean()

        self.with_log(use)

    def put_stores_on(self, directory: Path) -> None:
        """Move the stores to another file system."""
        shutil.move(self.data / "stores", directory / "stores")
        (self.data / "stores").symlink_to(directory / "stores")

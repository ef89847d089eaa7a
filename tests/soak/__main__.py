"""A soak: workers and a broker of their own, under load, with one fault after the other, and then the count.

    make soak MINUTES=30

The example's likes come in all the time. At the end everything is allowed to run; when all is handled, what came out is
compared with a plain fold over the likes that are in the log: matches, notices, and everybody's inbox. Then the workers
stop, and the changelogs are compared with their local stores. It prints the seed, the faults, the records and the
differences, and exits with 1 if there is any.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random, SystemRandom

import click

from examples.tinder_match.app import app, likes
from examples.tinder_match.check import Summary, compared
from examples.tinder_match.events import Like
from examples.tinder_match.generator import LikeStream, Origin
from tests.soak.faults import Faults
from tests.soak.verdict import verdict
from tests.soak.workers import APP, Worker
from tidegate.client.log_session import BrokerLogSession
from tidegate.errors import LogError
from tidegate.logs.base import NewRecord, TopicPartition
from tidegate.time.clock import SystemClock
from tidegate_app.kafka import Broker

_SPEED = 3 * 3600
"""Seconds of event time in one by the clock: months pass, and even a long soak does not come to the present, ahead of
which a broker takes no timestamps."""
PATIENCE = 240.0
"""Seconds for everything to be handled in the end."""


class Load:
    """Likes, at a rate, whatever happens to the broker. What became of a batch that failed does not matter: what
    counts is what is in the log."""

    def __init__(self, session: BrokerLogSession, seed: int, rate: float) -> None:
        self._session, self._rate = session, rate
        self._stream = LikeStream(seed, Origin())
        self.sent = 0
        self.failed = 0

    async def run(self) -> None:
        writer, last = None, time.monotonic()
        while True:
            await asyncio.sleep(0.1)
            now = time.monotonic()
            span = round(min(1.0, now - last) * _SPEED * 1000)
            batch = self._stream.next(round((now - last) * self._rate), span)
            last = now
            try:
                writer = writer or await self._session.log.writer()
                await writer.append(self._records(batch))
                self.sent += len(batch)
            except LogError:
                self.failed += len(batch)
                writer = None

    def _records(self, batch: list[Like]) -> dict[TopicPartition, list[NewRecord]]:
        topic = self._session.plan.topics[likes.name]
        records: dict[TopicPartition, list[NewRecord]] = {}
        for like in batch:
            key = topic.key_of(like) or b""
            at = TopicPartition(topic.name, topic.partition_for(key))
            records.setdefault(at, []).append((key, topic.codec.encode(like), like.at, ()))
        return records


class Soak:
    def __init__(self, directory: Path, *, minutes: float, seed: int, pace: float, workers: int, rate: float) -> None:
        self._directory, self._seconds, self._seed, self._pace, self._rate = directory, minutes * 60, seed, pace, rate
        self._broker = Broker(directory / "broker")
        self._count = workers
        self._numbers = count()
        self._partitions = 8
        self._gave_up = 0

    async def run(self) -> int:
        await asyncio.to_thread(self._broker.start)
        session = self._session()
        await session.start()
        await session.create_topics()
        workers = [self._new_worker() for _ in range(self._count)]
        try:
            for worker in workers:
                worker.start()
            faults = Faults(workers, self._broker, Random(self._seed), self._new_worker)
            load = Load(session, self._seed, self._rate)
            await self._suffer(faults, load, workers)
            summary = await self._settled(workers)
            return self._report(summary, await self._verdict(workers), faults, load)
        finally:
            for worker in workers:
                worker.kill()
            with suppress(LogError):
                await session.stop()
            await asyncio.to_thread(self._broker.kill)

    def _new_worker(self) -> Worker:
        return Worker(f"worker {next(self._numbers)}", self._directory, self._broker.url, self._partitions)

    async def _verdict(self, workers: list[Worker]) -> list[str]:
        """Of the log and the stores, when all have stopped."""
        for worker in workers:
            await asyncio.to_thread(worker.stop)
        return await asyncio.to_thread(verdict, self._directory, self._broker.url, APP, self._partitions)

    def _session(self) -> BrokerLogSession:
        definition = app.define()
        settings = definition.resolve({"broker": self._broker.url, "partitions": self._partitions}).settings
        return BrokerLogSession(definition, settings, SystemClock())

    async def _suffer(self, faults: Faults, load: Load, workers: list[Worker]) -> None:
        """Let things go wrong until the time is over."""
        began = time.monotonic()
        loading = asyncio.ensure_future(load.run())
        await asyncio.sleep(5)
        while time.monotonic() - began < self._seconds:
            happened = await faults.one()
            passed = (time.monotonic() - began) / 60
            click.echo(f"{passed:6.1f} min  {load.sent:>9,} likes  {faults.fired.total():>4} faults  {happened}")
            for worker in workers:
                if worker.gave_up:
                    self._gave_up += 1
                    worker.start()
                elif (words := worker.died()) is not None:
                    raise AssertionError(words)
            if loading.done():
                loading.result()
            await asyncio.sleep(self._pace)
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading

    async def _settled(self, workers: list[Worker]) -> Summary:
        """Compare until there are no differences, or none go away any more."""
        for worker in workers:
            if not worker.running:
                worker.start()
        deadline = time.monotonic() + PATIENCE
        while True:
            await asyncio.sleep(3)
            look = self._session()
            await look.start()
            try:
                summary = await compared(look)
            finally:
                await look.stop()
            if not summary.differences or time.monotonic() > deadline:
                return summary

    def _report(self, summary: Summary, verdict: list[str], faults: Faults, load: Load) -> int:
        click.echo("")
        for kind, times in faults.fired.most_common():
            click.echo(f"{times:>6}  {kind}")
        click.echo(f"seed {self._seed}: {faults.fired.total()} faults in {self._seconds / 60:g} minutes")
        if self._gave_up:
            click.echo(
                f"{self._gave_up} times a worker that started gave up for want of a broker, and was started again"
            )
        click.echo(f"{summary.likes:,} likes in the log ({load.failed:,} sent while the broker was away)")
        click.echo(f"{summary.matches:,} matches, {summary.people:,} inboxes, {len(summary.differences)} differences")
        click.echo(f"{len(verdict)} differences between the changelogs, the local stores, and what was read")
        for difference in (*summary.differences[:20], *verdict[:20]):
            click.echo(f"  {difference}")
        return 1 if summary.differences or verdict else 0


@click.command()
@click.option("--minutes", default=3.0, show_default=True, help="How long faults befall it.")
@click.option("--seed", type=int, default=None, help="Which faults, and which likes. [another one each time]")
@click.option("--pace", default=6.0, show_default=True, help="Seconds between the end of a fault and the next one.")
@click.option("--workers", default=3, show_default=True)
@click.option("--rate", default=1500.0, show_default=True, help="Likes per second.")
@click.option("--keep", is_flag=True, help="Keep the directory with the logs of broker and workers.")
def main(minutes: float, seed: int | None, pace: float, workers: int, rate: float, keep: bool) -> None:
    """Let a broker and its workers suffer, and count."""
    chosen = SystemRandom().randrange(1 << 32) if seed is None else seed
    directory = Path(tempfile.mkdtemp(prefix="tidegate-soak-"))
    click.echo(f"seed {chosen}, {workers} workers, 8 partitions, {minutes:g} minutes, in {directory}")
    soak = Soak(directory, minutes=minutes, seed=chosen, pace=pace, workers=workers, rate=rate)
    status = 1
    try:
        status = asyncio.run(soak.run())
    finally:
        if status == 0 and not keep:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            click.echo(f"logs: {directory}")
    sys.exit(status)


if __name__ == "__main__":
    main()

"""The Tinder example end to end: a broker, workers and Spark drivers as processes that can be killed, and an oracle."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.dataset as ds

from examples.tinder_match.app import app
from examples.tinder_match.events import DAY, MONTH, Like, Match, pair_of
from examples.tinder_match.fold import expected
from examples.tinder_match.generator import LikeStream, Origin
from tests.spark.support import tidegate
from tidegate.client.log_access import LogAccess
from tidegate.interop import TopicPartition, append_records

__all__ = ("Expectation", "Rows", "World", "compare", "compare_followed", "read_values", "rows_of")

PIPELINE = "examples.tinder_match.pipeline"
MINUTE, HOUR = 60_000, 3_600_000
Rows = Callable[[str], list[dict[str, Any]]]
"""What a table holds, by its name."""

SECONDS = 900.0
"""Long enough for a machine that has other things to do."""


@dataclass
class World:
    directory: Path
    broker: str
    likes: list[Like] = field(default_factory=list)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._stream = LikeStream(7, Origin())

    @property
    def flags(self) -> dict[str, Any]:
        return {"broker": self.broker, "data": self.directory / "data", "tables": str(self.directory / "tables")}

    @property
    def tables(self) -> Path:
        return self.directory / "tables" / "tinder"

    # -- processes ---------------------------------------------------------------------------------------------------
    def start_worker(self) -> None:
        self._start("worker", "worker", "examples.tinder_match:app", "--api", "off")

    def start_driver(self) -> None:
        jobs = ("collect", "windows")
        self._start("driver", "pipeline", "run", PIPELINE, *jobs, "--interval", "1 second")

    def run_jobs(self) -> None:
        """To the end of what is there, all of them, in the session of the tests: it is warm already."""
        places = [each for name, place in self.flags.items() for each in (f"--{name}", place)]
        tidegate("pipeline", "run", PIPELINE, "--once", *places)

    def kill(self, name: str, *, alone: bool = False) -> None:
        """As kill -9 does: with all that it has started, or alone, so that the others must notice."""
        process = self.running.pop(name)
        assert process.poll() is None, self.said(name)
        if alone:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.kills[name] += 1

    def close(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def said(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")[-3000:]

    def _start(self, name: str, *command: str) -> None:
        flags = ["--broker", self.broker, "--data", str(self.directory / "data")]
        if name == "driver":
            flags += ["--tables", str(self.directory / "tables"), "--spark-master", "local[2]"]
            flags += ["--conf", "spark.sql.shuffle.partitions=2"]
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "tidegate_app", *command, *flags],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    # -- events ------------------------------------------------------------------------------------------------------
    def send(self, count: int) -> None:
        """Likes of the next day, made a quarter of it at a time and sent by the half."""
        for _ in range(2):
            likes = [like for _ in range(2) for like in self._stream.next(count // 4, DAY // 4)]
            records = [(pair_of(like).encode(), msgspec.json.encode(like), ()) for like in likes]
            asyncio.run(append_records(app.define(), self.flags, "likes", records))
            self.likes += likes

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} has ended: {self.said(name)}"
            assert time.monotonic() < deadline, f"{what} did not happen: {self.said('driver')}"
            time.sleep(0.2)

    def wait_for_matches(self) -> None:
        """Until the services have answered all likes."""
        wanted = len(Expectation(self.likes).matches)
        self.wait("all matches", lambda: asyncio.run(_count("matches", self.flags)) >= wanted)

    def files(self, table: str) -> int:
        return sum(1 for _ in (self.tables / table).glob("date=*/*.parquet"))


async def _count(topic: str, flags: dict[str, Any]) -> int:
    return len(await read_values(topic, flags))


async def read_values(topic: str, flags: dict[str, Any]) -> list[bytes]:
    """What a topic of the example holds, committed."""
    async with LogAccess(app.define(), flags).observed() as observer:
        assert observer is not None
        known = await observer.topics()
        if topic not in known:
            return []
        sources = [TopicPartition(topic, number) for number in range(known[topic].partitions)]
        ends = await observer.end_offsets(sources)
        reader = observer.reader()
        reader.assign(await observer.start_offsets(sources))
        found: list[bytes] = []
        try:
            while any(reader.position(source) < end for source, end in ends.items()):
                for batch in await reader.read(timeout=1.0):
                    found += [record.value for record in batch.records if record.value is not None]
        finally:
            await reader.close()
        return found


class Expectation:
    """What the tables must hold, from the likes alone."""

    def __init__(self, likes: Iterable[Like]) -> None:
        self.likes = list(likes)
        self.matches: list[Match] = [match for found in expected(self.likes).matches.values() for match in found]

    def per(self, milliseconds: int) -> Counter[int]:
        return Counter(match.at // milliseconds * milliseconds for match in self.matches)

    def waits(self) -> dict[str, int]:
        given: dict[tuple[str, str], list[int]] = {}
        for like in self.likes:
            given.setdefault((like.liker, like.liked), []).append(like.at)
        return {
            match.pair: match.at - min(at for at in given[match.first, match.second] if abs(match.at - at) <= MONTH)
            for match in self.matches
        }

    def people(self) -> dict[str, tuple[int, int]]:
        """How many they liked, and how many of those it matched with."""
        liked = {(like.liker, like.liked) for like in self.likes}
        matched = {(match.first, match.second) for match in self.matches}
        both = matched | {(second, first) for first, second in matched}
        totals = Counter(liker for liker, _ in liked)
        found = Counter(liker for liker, other in liked if (liker, other) in both)
        return {person: (count, found[person]) for person, count in totals.items()}

    def days(self) -> dict[str, tuple[int, int]]:
        likes = Counter(like.at // DAY for like in self.likes)
        found = Counter(match.at // DAY for match in self.matches)
        return {
            time.strftime("%Y-%m-%d", time.gmtime(day * DAY / 1000)): (likes[day], found[day])
            for day in likes.keys() | found.keys()
        }


def rows_of(table: Path) -> list[dict[str, Any]]:
    """By pyarrow alone."""
    found: list[dict[str, Any]] = ds.dataset(table, partitioning="hive").to_table().to_pylist()
    return found


def compare(expectation: Expectation, rows: Rows) -> None:
    """Each table with what follows from the likes: nothing is missing, nothing is there twice."""
    compare_followed(expectation, rows)
    assert {row["pair"]: row["waited_ms"] for row in rows("like_to_match")} == expectation.waits()
    assert {row["person"]: (row["liked"], row["matches"]) for row in rows("people")} == expectation.people()
    assert {str(row["day"]): (row["likes"], row["matches"]) for row in rows("days")} == expectation.days()


def compare_followed(expectation: Expectation, rows: Rows) -> None:
    """Compare the tables of queries that follow topics."""
    assert Counter((row["id"], row["at"]) for row in rows("likes")) == Counter((i.id, i.at) for i in expectation.likes)
    assert Counter((row["pair"], row["first"], row["second"], row["at"]) for row in rows("matches")) == Counter(
        (match.pair, match.first, match.second, match.at) for match in expectation.matches
    )
    for table, column, unit in (("matches_per_minute", "minute", MINUTE), ("matches_per_hour", "hour", HOUR)):
        found = rows(table)
        assert {_ms(row[column]): row["matches"] for row in found} == expectation.per(unit)
        assert len(found) == len(expectation.per(unit))


def _ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)

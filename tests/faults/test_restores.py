"""Checkpoints of a run under load, each restored for real and run on to the end of the input: what comes out is what
the oracle says, whichever it is, also if the worker is killed on the way, and with another parallelism."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support import oracle
from tests.faults.support.embedded import EmbeddedWorld
from tests.faults.support.world import KILLED, Picture, World
from tests.faults.test_checkpoints import complete, storage_of
from tidegate.checkpoints.storage.reader import open_checkpoint
from tidegate.engine.commit.epoch_scan import epoch_of
from tidegate.logs.base import LogRecord

CHECKPOINTS, FEWER, SAMPLE = 52, 20, 4
OFTEN = {
    "TIDEGATE_CHECKPOINT_INTERVAL": "0.1",
    "TIDEGATE_CHECKPOINT_KEEP": "1000",
    "TIDEGATE_RETENTION_HOURS": "0",
    "TIDEGATE_PARTITIONS": "2",
}
POINTS = (
    "recovery.marker", "handler.after", "commit.frozen", "commit.appending", "log.written", "commit.appended",
    "commit.applied", "snapshot.uploading", "leader.begun", "leader.completed",
)  # fmt: skip
"""Where the restored worker is killed."""


@dataclass(frozen=True)
class Graph:
    app: str
    feed: str
    check: Callable[[World, Picture], None]


GRAPHS = {
    "tinder": Graph("examples.tinder_match:app", "tests.faults.support.feed:send_few_likes", oracle.check_tinder),
    "cycle": Graph("tests.faults.support.apps:cycle", "tests.faults.support.feed:send_entries", oracle.check_cycle),
}


@pytest.mark.timeout(890)
@pytest.mark.parametrize(
    ("graph", "sample"),
    [
        ("cycle", SAMPLE),
        pytest.param("tinder", None, marks=pytest.mark.slow),
        pytest.param("cycle", None, marks=pytest.mark.slow),
    ],
)
def test_restoring_any_checkpoint_leads_to_the_same_result(
    new_embedded_world: NewEmbeddedWorld,
    seed: int,
    graph: str,
    sample: int | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`sample`: how many of them, from a shorter run; None: all."""
    dice, restores = random.Random(seed), Restores(new_embedded_world, GRAPHS[graph])
    taken = restores.take(seed, CHECKPOINTS if sample is None else FEWER)
    chosen = taken if sample is None else [taken[-1], *dice.sample(taken[:-1], sample - 1)]  # the oldest is one of them
    for number, epoch in enumerate(chosen):
        restores.restore(epoch, dice, kill=number % 3 != 1)

    counted = restores.counted
    with capsys.disabled():
        sys.stdout.write(f"\nseed {seed}: {graph}, {len(taken)} checkpoints, {dict(counted)}\n")
    assert counted["restored"] == len(chosen)
    assert counted["killed"] >= len(chosen) // 4
    assert counted["sent again"] > 0, "nothing was left to be done after the cuts: the test shows nothing"
    assert counted["in flight"] > 0 or sample is not None, "no cut had anything in flight"


class Restores:
    """A world in which checkpoints are taken, and copies of it that restore one of them."""

    def __init__(self, new_world: NewEmbeddedWorld, graph: Graph) -> None:
        self._new_world, self._graph = new_world, graph
        self._source: EmbeddedWorld = new_world(graph.app, **OFTEN)
        self.counted: Counter[str] = Counter()

    def take(self, seed: int, count: int) -> list[int]:
        """Take checkpoints under load, and kill the worker in the middle of it."""
        source, storage = self._source, storage_of(self._source)
        life = source.live(until_end=False, feed=self._graph.feed, environment={"TIDEGATE_SEED": str(seed)})
        life.wait_until(lambda: len(storage.checkpoints()) >= count, 120, "did not take its checkpoints")
        life.kill()
        return complete(source)

    def restore(self, epoch: int, dice: random.Random, *, kill: bool) -> None:
        """Into a copy of the log, as it was when the worker was killed."""
        world = self._copy()
        partitions = dice.choice((None, None, 1, 3))
        rescaled = () if partitions is None else ("--partitions", str(partitions))
        world.command("savepoint", "restore", self._graph.app, str(epoch), *rescaled)
        if kill:
            point = dice.choice(POINTS)
            life = world.live(f"{point}:kill@{dice.randint(1, 3)}")  # if it reaches the point
            assert life.wait() in (0, KILLED), world.with_seed(life.output)
            self.counted["killed"] += life.status == KILLED
        world.drain()
        picture = world.look()
        assert picture.plan.run.id == "2", world.with_seed("it did not go on from the checkpoint")
        self._graph.check(world, self._from_the_cut(picture, epoch))
        self.counted["restored"] += 1
        self.counted["rescaled"] += partitions is not None
        self.counted["in flight"] += open_checkpoint(storage_of(self._source), epoch).manifest.in_flight_records
        shutil.rmtree(world.directory)

    def _copy(self) -> EmbeddedWorld:
        world = self._new_world(self._graph.app, **OFTEN)
        shutil.copytree(
            self._source.data, world.data, ignore=shutil.ignore_patterns("stores", "control.json", "control.sock")
        )
        return world

    def _from_the_cut(self, picture: Picture, epoch: int) -> Picture:
        """Without the records that the first run sent after the cut: the new run sends them again."""
        first = f"{picture.plan.app}|1|".encode()

        def counts(record: LogRecord) -> bool:
            sent_in = epoch_of(record.headers, first)
            return sent_in is None or sent_in < epoch

        kept = {source: [record for record in records if counts(record)] for source, records in picture.topics.items()}
        self.counted["sent again"] += sum(len(records) - len(kept[at]) for at, records in picture.topics.items())
        return replace(picture, topics=kept)

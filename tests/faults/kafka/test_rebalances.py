"""Workers come and go under load: tasks move between them, in the middle of everything, and nothing is lost."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.apps import Entry
from tests.faults.support.feed import entries
from tests.faults.support.kafka import SESSION, KafkaWorld
from tests.faults.support.processes import WorkerProcess
from tests.faults.support.sending import Sending
from tests.faults.support.world import KILLED, Picture, World

PARTITIONS = 8
Check = Callable[[World, Picture], None]


def load(seed: int, *, waiting: float = 0.0, in_order: bool = False) -> Iterator[list[Entry]]:
    """Entries without an end, in small batches."""
    endless = entries(seed, 1_000_000, keys=60, waiting=waiting, in_order=in_order)
    dice = random.Random(seed)
    while True:
        yield list(itertools.islice(endless, dice.randint(1, 30)))


def has_tasks(life: WorkerProcess) -> bool:
    return "assigned:" in life.output and "recovered" in life.output


def share(world: KafkaWorld, lives: Sequence[WorkerProcess]) -> None:
    world.until(lambda: all(map(has_tasks, lives)), "they do not share the tasks")


def goes_on(world: KafkaWorld, count: Callable[[], int], more: int) -> None:
    before = count()
    world.until(lambda: count() > before + more, "it does not go on")


def end(world: KafkaWorld, *lives: WorkerProcess) -> None:
    """In order."""
    for life in lives:
        life.signal(signal.SIGTERM)
    for life in lives:
        assert life.wait() == 0, world.with_seed(life.output)


@pytest.mark.parametrize(
    ("app", "check"),
    [
        ("ledger", oracle.check_ledger),
        pytest.param("alarms", oracle.check_alarms, marks=pytest.mark.slow),
        pytest.param("chained", oracle.check_chained, marks=pytest.mark.slow),
        pytest.param("shuffled", oracle.check_shuffled, marks=pytest.mark.slow),
        pytest.param("eager", oracle.check_eager, marks=pytest.mark.slow),
    ],
)
def test_scaling_from_one_to_three_to_two_workers_under_load_is_exact(
    new_kafka_world: NewKafkaWorld, seed: int, app: str, check: Check
) -> None:
    world = new_kafka_world(app, partitions=PARTITIONS)
    with Sending(world, "entries", load(seed, waiting=0.05, in_order=app == "chained")) as sending:
        world.until(lambda: sending.acknowledged, "nothing is sent")
        first = world.join()
        world.until(lambda: has_tasks(first), "the first one has no tasks")
        others = [world.join(), world.join()]
        share(world, others)
        goes_on(world, lambda: sending.acknowledged, 300)
        end(world, first)
        goes_on(world, lambda: sending.acknowledged, 300)
    assert "revoked: " in first.output, world.with_seed(first.output)
    end(world, *others)
    world.drain()
    check(world, world.look())


POINTS = {
    "group.rebalancing": 2,
    "group.assigned": 2,
    "task.opening": 9,
    "task.closing": 1,
    "recovery.started": 9,
    "recovery.marker": 9,
    "transaction.sent": 30,
    "transaction.ending": 30,
    "commit.appended": 30,
}
"""Where a worker is killed while another joins; points of the first opening are counted from after it."""


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point == "group.assigned" else pytest.mark.slow) for point in POINTS]
)
def test_a_kill_during_a_rebalance_loses_and_duplicates_nothing(
    new_kafka_world: NewKafkaWorld, seed: int, point: str
) -> None:
    """Two workers share the tasks; a third comes, one of the two goes, and one is killed in the midst of it."""
    world = new_kafka_world("alarms", partitions=PARTITIONS)
    with Sending(world, "entries", load(seed, waiting=0.1)):
        victim = world.join(f"{point}:kill@{POINTS[point]}")
        world.until(lambda: has_tasks(victim) or victim.over, "the first one has no tasks")
        second = world.join()
        world.until(lambda: has_tasks(second), "the second one has no tasks")
        end(world, second)
        third = world.join()
        world.until(lambda: victim.over, f"{point} was not reached")
        share(world, [third])
        goes_on(world, lambda: len(world.notes), 100)
    assert victim.status == KILLED, world.with_seed(victim.output)
    assert world.struck[f"{point}:kill"] == 1
    end(world, third)
    world.drain()
    oracle.check_alarms(world, world.look())


@pytest.mark.slow
def test_a_task_with_several_inputs_has_one_owner_for_all_of_them(new_kafka_world: NewKafkaWorld, seed: int) -> None:
    """Two services in a circle, one of them reads two topics; workers come, go in order and are killed."""
    dice = random.Random(seed)
    world = new_kafka_world("cycle", partitions=PARTITIONS)
    with Sending(world, "entries", load(seed)):
        lives = [world.join(), world.join()]
        for _ in range(5):
            share(world, lives)
            goes_on(world, lambda: world.observed("postings"), 30)
            gone = lives.pop(dice.randrange(len(lives)))
            if dice.random() < 0.6:
                gone.kill()
            else:
                end(world, gone)
            lives += [world.join() for _ in range(3 - len(lives))]
        share(world, lives)
    end(world, *lives)
    world.drain()
    oracle.check_cycle(world, world.look())


# -- restoring ------------------------------------------------------------------------------------------------------


def hoarding(new_kafka_world: NewKafkaWorld, seed: int, **environment: str) -> KafkaWorld:
    """A world with a changelog that takes many reads to restore, and without local stores."""
    world = new_kafka_world("hoard", TIDEGATE_COMMIT_INTERVAL="0.2", TIDEGATE_COMMIT_CHANGES="1000", **environment)
    hoard = [Entry(id=e.id, key=f"k{e.id}", amount=0, at=e.at, size=8_000) for e in entries(seed, 4000)]
    world.append("entries", hoard, batch=100)
    world.drain()
    world.lose_stores()
    return world


SLOWLY = "recovery.replaying:delay=0.6"


@pytest.mark.slow
def test_no_member_is_evicted_for_restoring_longer_than_the_session_timeout(
    new_kafka_world: NewKafkaWorld, seed: int
) -> None:
    world = hoarding(new_kafka_world, seed, TIDEGATE_LOG_LEVEL="debug")
    began = time.monotonic()
    life = world.live(SLOWLY, until_end=False)
    life.wait_for("recovered", seconds=60)
    took = time.monotonic() - began
    assert took > 2 * SESSION, world.with_seed(f"it took only {took:.1f} s to restore: the test shows nothing")
    assert world.struck["recovery.replaying:delay"] > 5
    assert "assignment 2" not in life.output, world.with_seed("it was evicted, or asked to rejoin")
    assert "not recognized" not in life.output, world.with_seed("it was evicted")
    end(world, life)
    world.append("entries", entries(seed + 1, 100, first=10_001))
    world.drain()
    oracle.check_hoard(world, world.look())


@pytest.mark.slow
@pytest.mark.parametrize("then", ["a kill", "an orderly end"])
def test_a_restore_interrupted_by_a_rebalance_completes_on_another_worker(
    new_kafka_world: NewKafkaWorld, seed: int, then: str
) -> None:
    world = hoarding(new_kafka_world, seed)
    first = world.join(SLOWLY)
    world.until(lambda: world.struck["recovery.replaying:delay"] >= 2, "it does not restore")
    second = world.join(SLOWLY)
    second.wait_for("assigned:")
    first.wait_for("revoked: ")
    assert "recovered" not in first.output, world.with_seed("it was restored already: the test shows nothing")
    before = world.struck["recovery.replaying:delay"]
    world.until(lambda: world.struck["recovery.replaying:delay"] > before + 1, "they do not restore together")
    if then == "a kill":
        first.kill()
    else:
        end(world, first)
    world.append("entries", entries(seed + 1, 100, first=10_001))
    world.until(lambda: world.observed("postings") == 4100, "the work does not go on", seconds=80)
    end(world, second)
    world.drain()
    oracle.check_hoard(world, world.look())

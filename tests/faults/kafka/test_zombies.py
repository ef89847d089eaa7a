"""SIGSTOP past the session timeout, then SIGCONT: a worker that does not know that its tasks have moved."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.kafka import KafkaWorld
from tests.faults.support.processes import WorkerProcess

COUNT = 400
VISITS = {
    "handler.after": 60,
    "timer.fired": 20,
    "commit.frozen": 4,
    "commit.appending": 4,
    "transaction.sent": 4,
    "transaction.ending": 4,
    "transaction.ended": 4,
    "commit.appended": 4,
    "commit.applied": 4,
    "task.opening": 1,
    "recovery.started": 1,
    "recovery.marker": 2,
    "group.assigned": 1,
    "group.rebalancing": 1,
}
"""Where it falls asleep: before, in and after a commit, while it opens its tasks, and before it knows which it has."""
QUICK = {"handler.after", "transaction.sent"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="whether a process is stopped is read from /proc")


def asleep(world: KafkaWorld, point: str, **options: str) -> WorkerProcess:
    life = world.live(f"{point}:stop@{VISITS[point]}", until_end=False, name=options.get("name", ""))
    life.wait_until(lambda: life.stopped, what=f"did not stop at {point}")
    assert world.struck[f"{point}:stop"] == 1
    return life


def end_all(world: KafkaWorld, *lives: WorkerProcess) -> None:
    for life in lives:
        life.signal(signal.SIGTERM)
    for life in lives:
        assert life.wait() == 0, world.with_seed(life.output)


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point in QUICK else pytest.mark.slow) for point in VISITS]
)
def test_a_zombie_is_fenced_and_discards_its_work_after_its_task_moved(
    new_kafka_world: NewKafkaWorld, seed: int, point: str
) -> None:
    """And then it rejoins, and has its share of the work again."""
    world = new_kafka_world("alarms", TIDEGATE_TEST_TOIL="0.001")
    world.append("entries", entries(seed, COUNT, waiting=0.1))
    zombie = asleep(world, point)
    successor = world.join()
    successor.wait_for("assigned: clock.0, clock.1")
    handled = {f"handled {number}" for number in range(1, COUNT + 1)}
    world.until(lambda: handled <= {*world.notes}, "the successor does not do the work")

    zombie.signal(signal.SIGCONT)
    successor.wait_for("revoked: ")  # the zombie has rejoined
    world.append("entries", entries(seed + 1, COUNT, first=COUNT + 1))
    handled = {f"handled {number}" for number in range(1, 2 * COUNT + 1)}
    world.until(lambda: handled <= {*world.notes}, "they do not do the work together")
    end_all(world, zombie, successor)
    world.drain()
    oracle.check_alarms(world, world.look())
    if point in ("handler.after", "commit.frozen", "commit.appending", "transaction.sent"):
        assert "must discard its uncommitted work" in zombie.output, world.with_seed(zombie.output)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["handler.after", "transaction.sent"])
def test_a_zombie_stops_with_an_error_when_its_instance_name_is_taken(
    new_kafka_world: NewKafkaWorld, seed: int, point: str
) -> None:
    """Two workers with one name: the younger one has it. The older one cannot be a member any more."""
    world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.001")
    world.append("entries", entries(seed, COUNT))
    zombie = asleep(world, point, name="same")
    successor = world.live(until_end=False, name="same")
    world.until(lambda: world.observed("postings") == COUNT, "the successor does not do the work")
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() == 1, world.with_seed(zombie.output)
    assert "with the same kafka_instance 'same'" in zombie.output, world.with_seed(zombie.output)
    end_all(world, successor)
    world.drain()
    oracle.check_ledger(world, world.look())


@pytest.mark.slow
def test_a_pause_shorter_than_the_session_timeout_has_no_effect(new_kafka_world: NewKafkaWorld, seed: int) -> None:
    world = new_kafka_world("alarms", TIDEGATE_TEST_TOIL="0.0005", TIDEGATE_KAFKA_SESSION_TIMEOUT="30")
    world.append("entries", entries(seed, COUNT))
    life = asleep(world, "transaction.sent")
    life.signal(signal.SIGCONT)
    handled = {f"handled {number}" for number in range(1, COUNT + 1)}
    life.wait_until(lambda: handled <= {*world.notes}, what="did not go on")
    end_all(world, life)
    assert life.output.count("assigned:") == 1, world.with_seed(life.output)
    assert "Reopening the task" not in life.output, world.with_seed(life.output)
    world.drain()
    oracle.check_alarms(world, world.look())

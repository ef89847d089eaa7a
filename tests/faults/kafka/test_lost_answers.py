"""A network that fails: answers that never arrive, and a worker that is cut off from the broker and from the others."""

from __future__ import annotations

import os
import random
import signal

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.kafka import SESSION
from tests.faults.support.proxy import END_TXN, KINDS, Proxy
from tests.faults.support.world import KILLED
from tidegate_app.kafka.plugin import SharedKafka

COUNT = 600
FEW = ("Heartbeat", "JoinGroup", "SyncGroup")
"""Of which there may be a single answer in a run."""


def test_a_commit_with_a_lost_response_is_resolved_from_the_log(
    new_kafka_world: NewKafkaWorld, kafka: SharedKafka, seed: int
) -> None:
    """The producer is discarded: the task is reopened, which ends its pending transaction, and resumes from the log."""
    with Proxy(kafka.url) as proxy:
        world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.0005")
        world.append("entries", entries(seed, COUNT, waiting=0.1))
        proxy.lose(END_TXN, lambda answered: answered in (4, 9, 10, 17))
        life = world.live(environment={"TIDEGATE_BROKER": proxy.url})
        assert life.wait() == 0, world.with_seed(life.output)
    assert proxy.lost[END_TXN] == 4, world.with_seed("no answer was lost")
    assert life.output.count("Reopening the task from its last commit") >= 1, world.with_seed(life.output)
    oracle.check_ledger(world, world.look())


@pytest.mark.parametrize("nth", [3, pytest.param(8, marks=pytest.mark.slow), pytest.param(15, marks=pytest.mark.slow)])
def test_a_kill_before_the_response_to_a_commit_duplicates_nothing(
    new_kafka_world: NewKafkaWorld, kafka: SharedKafka, seed: int, nth: int
) -> None:
    """The broker has committed, and the worker never hears of it."""
    with Proxy(kafka.url) as proxy:
        world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.0005")
        world.append("entries", entries(seed, COUNT))

        def kill(answered: int) -> bool:
            if answered != nth:
                return False
            os.kill(life.pid, signal.SIGKILL)
            return True

        proxy.lose(END_TXN, kill)
        life = world.live(environment={"TIDEGATE_BROKER": proxy.url})
        assert life.wait() == KILLED, world.with_seed(life.output)
    assert proxy.lost[END_TXN] == 1
    world.drain()
    oracle.check_ledger(world, world.look())


def test_a_commit_that_never_reaches_the_broker_is_not_counted(
    new_kafka_world: NewKafkaWorld, kafka: SharedKafka, seed: int
) -> None:
    """To the worker it looks the same as one whose answer is lost. Here the records are handled again."""
    with Proxy(kafka.url) as proxy:
        world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.0005")
        world.append("entries", entries(seed, COUNT, waiting=0.1))
        proxy.drop(END_TXN, lambda asked: asked in (4, 9, 10, 17))
        life = world.live(environment={"TIDEGATE_BROKER": proxy.url})
        assert life.wait() == 0, world.with_seed(life.output)
    assert proxy.dropped[END_TXN] == 4, world.with_seed("no request was lost")
    oracle.check_ledger(world, world.look())


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"OffsetCommit", "LeaveGroup"}))
def test_the_worker_survives_a_lost_response_to_any_request(
    new_kafka_world: NewKafkaWorld, kafka: SharedKafka, seed: int, kind: str
) -> None:
    dice = random.Random(seed)
    with Proxy(kafka.url) as proxy:
        world = new_kafka_world("alarms", TIDEGATE_TEST_TOIL="0.0005")
        world.append("entries", entries(seed, COUNT, waiting=0.1))
        lost = {1 if kind in ("JoinGroup", "SyncGroup") else dice.randint(1, 3), dice.randint(4, 12)}
        proxy.lose(KINDS[kind], lambda answered: answered in lost)
        life = world.live(environment={"TIDEGATE_BROKER": proxy.url})
        assert life.wait() == 0, world.with_seed(life.output)
    assert proxy.lost[KINDS[kind]] >= 1, world.with_seed(f"no answer was lost: {proxy.answered}")
    world.drain()
    oracle.check_alarms(world, world.look())


def test_a_partitioned_worker_is_fenced_when_the_network_recovers(
    new_kafka_world: NewKafkaWorld, kafka: SharedKafka, seed: int
) -> None:
    """What it had sent before arrives after its tasks have moved, and counts for nothing."""
    with Proxy(kafka.url) as proxy:
        world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.001")
        world.append("entries", entries(seed, 2 * COUNT))
        cut_off = world.join(TIDEGATE_BROKER=proxy.url)
        world.until(lambda: len(world.notes) > COUNT // 4, "nothing was handled")
        proxy.cut()
        other = world.join()
        other.wait_for("assigned: ledger.0, ledger.1", seconds=SESSION + 30)
        world.until(lambda: world.observed("postings") == 2 * COUNT, "the other one does not do the work")
        proxy.reconnect()
        cut_off.wait_for("must discard its uncommitted work")
        cut_off.wait_for("revoked: ")
        other.wait_for("revoked: ")  # the other one has rejoined, and has its share again
        for life in (cut_off, other):
            life.signal(signal.SIGTERM)
            assert life.wait() == 0, world.with_seed(life.output)
    world.drain()
    oracle.check_ledger(world, world.look())


def test_an_evicted_worker_does_not_fence_its_successor(
    new_kafka_world: NewKafkaWorld, kafka: SharedKafka, seed: int
) -> None:
    """It reaches the log, but not the group. As long as the group does not say that a task is its own, a task that was
    fenced stays closed: otherwise the two would fence each other for ever."""
    of_the_group = [KINDS[name] for name in ("Heartbeat", "JoinGroup", "SyncGroup", "LeaveGroup", "OffsetCommit")]
    with Proxy(kafka.url) as proxy:
        world = new_kafka_world("ledger", TIDEGATE_TEST_TOIL="0.001")
        world.append("entries", entries(seed, COUNT))
        lost = world.join(TIDEGATE_BROKER=proxy.url)
        world.until(lambda: len(world.notes) > COUNT // 4, "nothing was handled")
        proxy.hold(*of_the_group)
        successor = world.join()
        successor.wait_for("assigned: ledger.0, ledger.1", seconds=SESSION + 30)
        world.append("entries", entries(seed + 1, COUNT, first=COUNT + 1))  # both see it, one may handle it
        lost.wait_for("must discard its uncommitted work")
        lost.wait_for("waiting for the group to confirm or change the assignment")
        world.until(lambda: world.observed("postings") == 2 * COUNT, "the successor does not do the work")
        assert "must discard its uncommitted work" not in successor.output, world.with_seed(successor.output)
        proxy.hold()
        successor.wait_for("revoked: ")  # the other one has rejoined, and has its share again
        for life in (lost, successor):
            life.signal(signal.SIGTERM)
            assert life.wait() == 0, world.with_seed(life.output)
    world.drain()
    oracle.check_ledger(world, world.look())

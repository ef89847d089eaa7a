"""A batch that the broker refuses inside a transaction aborts the transaction, and affects no other record.

The record at fault goes the way of the service's error policy. What is wrong is known to the broker alone: an output
that is stamped further ahead than its topic allows, or larger than its topic takes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.apps import Entry, Posting
from tests.faults.support.feed import entries
from tests.faults.support.kafka import KafkaWorld
from tests.faults.support.world import KILLED, Picture

COUNT = 200
BAD = frozenset({20, 77, 78, 150})
KINDS = ["stamped too far ahead", "larger than the topic takes"]
APPS = {"dead_letters": "letters.ledger.dead-letters", "retrying": "retrying.ledger.dead-letters", "skipping": ""}
ERRORS = {KINDS[0]: b"RecordRefusedError", KINDS[1]: b"RecordTooLargeError"}
LIMIT, SIZE = 4_000, 20_000
OPENING = ("task.opening", "recovery.marker")


def with_bad(seed: int, kind: str, *, waiting: float = 0.0) -> Iterable[Entry]:
    far_ahead = int(time.time() * 1000) + 5 * 3600 * 1000
    for entry in entries(seed, COUNT, waiting=waiting):
        if entry.id not in BAD:
            yield entry
        elif kind == KINDS[0]:
            yield msgspec.structs.replace(entry, at=far_ahead)
        else:
            yield msgspec.structs.replace(entry, size=SIZE)


def strict(
    new_kafka_world: NewKafkaWorld, app: str, seed: int, kind: str, *, waiting: float = 0.0, **options: Any
) -> KafkaWorld:
    """A world whose broker refuses the results of some entries."""
    world = new_kafka_world(app, TIDEGATE_TEST_TOIL="0.0003", TIDEGATE_KAFKA_COMPRESSION="none", **options)
    world.configure("postings", max_message_bytes=str(LIMIT))
    world.append("entries", with_bad(seed, kind, waiting=waiting))
    return world


def check(world: KafkaWorld, picture: Picture, app: str, kind: str) -> None:
    oracle.check_ledger(world, picture, dead_lettered=BAD)
    if not APPS[app]:
        return
    letters = [letter for part in picture.partitions(APPS[app]) for letter in part]
    dead_lettered = sorted(msgspec.json.decode(letter.value or b"", type=Entry).id for letter in letters)
    oracle.check_equal(world, "the dead letters", dead_lettered, sorted(BAD))
    errors = {dict(letter.headers)["error-type"] for letter in letters}
    oracle.check_equal(world, "what was wrong with them", errors, {ERRORS[kind]})


@pytest.mark.parametrize("waiting", [0.0, pytest.param(0.3, marks=pytest.mark.slow)], ids=["direct", "waiting"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("app", ["dead_letters", *(pytest.param(app, marks=pytest.mark.slow) for app in [*APPS][1:])])
def test_a_batch_refused_by_the_broker_affects_no_other_record(
    new_kafka_world: NewKafkaWorld, seed: int, app: str, kind: str, waiting: float
) -> None:
    world = strict(new_kafka_world, app, seed, kind, waiting=waiting)
    life = world.drain()
    assert life.output.count("Reopening the task") >= 1, world.with_seed("nothing was refused: the test shows nothing")
    check(world, world.look(), app, kind)


def test_a_bounded_run_does_not_end_while_its_last_commit_is_refused(new_kafka_world: NewKafkaWorld, seed: int) -> None:
    """Everything is handled before the first commit is due."""
    rarely: dict[str, Any] = {"TIDEGATE_COMMIT_INTERVAL": "1", "TIDEGATE_COMMIT_CHANGES": "100000"}
    world = strict(new_kafka_world, "dead_letters", seed, KINDS[1], partitions=1, **rarely)
    life = world.drain()
    assert "Reopening the task" in life.output, world.with_seed("nothing was refused: the test shows nothing")
    check(world, world.look(), "dead_letters", KINDS[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_refused_by_the_broker_stops_the_worker_under_the_stop_policy(
    new_kafka_world: NewKafkaWorld, seed: int, kind: str
) -> None:
    """Every start fails alike; earlier records are committed once; the app continues when the topic accepts it."""
    world = strict(new_kafka_world, "stopping", seed, kind)
    for _ in range(2):
        life = world.fail(error=ERRORS[kind].decode())
        assert "ServiceFailedError" in life.output, world.with_seed(life.output)
    done = {msgspec.json.decode(r.value or b"", type=Posting).id for part in world.topics("postings") for r in part}
    assert not done & BAD, world.with_seed("something was committed that the broker refuses")
    ahead = str((1 << 63) - 1)
    world.configure("postings", max_message_bytes=str(10 * SIZE), message_timestamp_after_max_ms=ahead)
    world.drain()
    oracle.check_ledger(world, world.look())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "point",
    ["task.reopening", "task.opening", "recovery.marker", "transaction.sent", "commit.applied", "handler.after"],
)
def test_a_kill_during_the_search_dead_letters_only_the_refused_record(
    new_kafka_world: NewKafkaWorld, seed: int, point: str, kind: str
) -> None:
    dice = random.Random(seed)
    world = strict(new_kafka_world, "dead_letters", seed, kind)
    for _ in range(4):
        visit = dice.randint(1, 2) if point.startswith(("task.", "recovery.")) else dice.randint(3, 40)
        life = world.live(
            f"{point}:kill@{visit + 2 * (point in OPENING)}"
        )  # one opening at the start, one after the refusal
        assert life.wait() in (0, KILLED), world.with_seed(life.output)
    assert world.struck, world.with_seed("nothing was killed")
    world.drain()
    check(world, world.look(), "dead_letters", kind)

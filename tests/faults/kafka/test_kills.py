"""kill -9 at every named point of a worker on a broker: the transaction is there or not, and nothing is done twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.faults.conftest import NewKafkaWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.kills import COUNT, VARIANTS, kill_once, kill_repeatedly
from tests.faults.support.points import ON_KAFKA
from tests.faults.support.processes import ROOT
from tests.faults.support.world import KILLED
from tidegate_app.kafka import Broker

ELSEWHERE = {"recovery.replaying", "task.reopening"}
"""Points that an ordinary run does not reach: `test_recovery` and `test_refusals` cover them."""
QUICK = {"handler.after", "transaction.sent", "transaction.ending", "transaction.ended", "commit.applied"}
"""The others are for `make faults`."""


def cases() -> list[object]:
    """Each point once, somewhere, for each kind of handler."""
    found: list[object] = []
    for variant in VARIANTS:
        for point in sorted({*ON_KAFKA} - ELSEWHERE):
            if point != "timer.fired" or "timers" in variant:
                marks = () if variant == "direct" and point in QUICK else pytest.mark.slow
                found.append(pytest.param(variant, point, id=f"{variant}-{point}", marks=marks))
    return found


@pytest.mark.parametrize(("variant", "point"), cases())
def test_a_kill_at_any_point_loses_and_duplicates_nothing(
    new_kafka_world: NewKafkaWorld, seed: int, variant: str, point: str
) -> None:
    kill_once(new_kafka_world, seed, variant, point, None)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_successive_kills_lose_and_duplicate_nothing(new_kafka_world: NewKafkaWorld, seed: int, variant: str) -> None:
    kill_repeatedly(new_kafka_world, seed, variant)


@pytest.mark.slow
def test_the_command_itself_survives_kill_9(
    new_kafka_world: NewKafkaWorld, private_kafka: Callable[[], Broker], seed: int
) -> None:
    """`tidegate worker` as anybody starts it, in a process that imported nothing before."""
    world = new_kafka_world("ledger", broker=private_kafka().url, alone=True)
    world.append("entries", entries(seed, COUNT))
    command = [sys.executable, "-m", "tidegate_app", "worker", world.app, "--until-end"]
    environment = {
        **os.environ,
        **world.environment,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TIDEGATE_FAULTS": "transaction.ending:kill@6",
    }
    killed = subprocess.run(command, env=environment, check=False, capture_output=True)
    assert killed.returncode == KILLED, killed.stderr.decode()
    ended = subprocess.run(command, env={**environment, "TIDEGATE_FAULTS": ""}, check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    oracle.check_ledger(world, world.look())

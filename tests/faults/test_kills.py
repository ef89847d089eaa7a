"""kill -9 at every named point, early and late: the transaction is there or not, and nothing is done twice or never."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.kills import COUNT, OFTEN, TOIL, VARIANTS, VISITS, kill_once, kill_repeatedly
from tests.faults.support.points import ON_EMBEDDED
from tests.faults.support.processes import ROOT
from tests.faults.support.world import KILLED

ELSEWHERE = {"log.cleaning", "log.cleaned", "recovery.replaying", "task.reopening"}
"""Points that an ordinary run does not reach: `test_recovery` or the tests on Kafka cover them."""

RARER = {"direct", "timers", "tallies", "ttl", "at-least-once"}
"""Kinds of which the quick run only tests one kill after the other. Of the handlers of `waiting` most do not wait, and
`waiting-timers` has timers of every kind: what holds for them holds for `direct` and `timers`."""


def cases() -> list[object]:
    """Each point once, somewhere, for each kind of handler; the slow ones are the first, the third and the rest."""
    found: list[object] = []
    for variant in VARIANTS:
        for point in sorted({*ON_EMBEDDED} - ELSEWHERE):
            if point == "timer.fired" and "timers" not in variant:
                continue
            marks = pytest.mark.slow if variant in RARER else ()
            found.append(pytest.param(variant, point, None, id=f"{variant}-{point}-random", marks=marks))
            for visit in (1, 3):
                if visit <= VISITS.get(point, OFTEN):
                    name = f"{variant}-{point}-{visit}"
                    found.append(pytest.param(variant, point, visit, id=name, marks=pytest.mark.slow))
    return found


@pytest.mark.parametrize(("variant", "point", "visit"), cases())
def test_a_kill_at_any_point_loses_and_duplicates_nothing(
    new_embedded_world: NewEmbeddedWorld, seed: int, variant: str, point: str, visit: int | None
) -> None:
    kill_once(new_embedded_world, seed, variant, point, visit)


@pytest.mark.parametrize("variant", VARIANTS)
def test_successive_kills_lose_and_duplicate_nothing(
    new_embedded_world: NewEmbeddedWorld, seed: int, variant: str
) -> None:
    kill_repeatedly(new_embedded_world, seed, variant)


@pytest.mark.parametrize("visit", [3, 9])
def test_a_transaction_torn_by_a_power_loss_is_rolled_back(
    new_embedded_world: NewEmbeddedWorld, seed: int, visit: int
) -> None:
    """Written, not synced, and only partly on the disk: it was not acknowledged, and is repeated."""
    dice = random.Random(seed)
    world = new_embedded_world("ledger", TIDEGATE_TEST_TOIL=TOIL)
    world.append("entries", entries(seed, COUNT))
    for _ in range(3):
        world.suffer(f"log.written:kill@{visit}")
        newest = max((world.data / "log").glob("*.log"), key=lambda file: file.stat().st_mtime_ns)
        os.truncate(newest, newest.stat().st_size - dice.randint(1, 30))
    world.drain()
    oracle.check_ledger(world, world.look())


def test_the_command_itself_survives_kill_9(new_embedded_world: NewEmbeddedWorld, seed: int) -> None:
    """`tidegate worker` as anybody starts it, in a process that imported nothing before."""
    world = new_embedded_world("ledger")
    world.append("entries", entries(seed, COUNT))
    command = [sys.executable, "-m", "tidegate_app", "worker", world.app, "--until-end"]
    environment = {
        **os.environ,
        **world.environment,
        "PYTHONPATH": str(ROOT),
        "TIDEGATE_FAULTS": "commit.appended:kill@6",
    }
    killed = subprocess.run(command, env=environment, check=False, capture_output=True)
    assert killed.returncode == KILLED, killed.stderr.decode()
    ended = subprocess.run(command, env={**environment, "TIDEGATE_FAULTS": ""}, check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    oracle.check_ledger(world, world.look())

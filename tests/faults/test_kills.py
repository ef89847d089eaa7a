"""kill -9 at every named point, early and late: the transaction is there or not, and nothing is done twice or never."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.processes import ROOT
from tests.faults.support.world import KILLED, Picture, World
from tidegate.faults import POINTS

COUNT = 300
TOIL = "0.0003"
OFTEN = 15
"""A life of COUNT entries passes most points about so often."""
VISITS = {
    "input.read": 2,
    "recovery.started": 2,
    "recovery.marker": 2,
    "store.flush": 2,
    "handler.before": 30,
    "handler.after": 30,
    "timer.fired": 25,
}
"""But these so often."""
ELSEWHERE = {"log.cleaning", "log.cleaned", "recovery.replaying"}
"""Points that a plain life does not come to: `test_recovery` and `test_changelogs` bring it there."""

Check = Callable[[World, Picture], None]
VARIANTS: dict[str, tuple[str, float, Check]] = {
    "direct": ("ledger", 0.0, oracle.check_ledger),
    "waiting": ("ledger", 0.3, oracle.check_ledger),
    "timers": ("sessions", 0.0, oracle.check_sessions),
    "waiting-timers": ("alarms", 0.3, oracle.check_alarms),
    "tallies": ("tallies", 0.2, oracle.check_tallies),
    "ttl": ("fading", 0.0, oracle.check_fading),
    "at-least-once": ("eager", 0.2, oracle.check_eager),
}


RARER = {"tallies", "ttl", "at-least-once"}
"""Kinds of which the quick run only tests one kill after the other."""


def cases() -> list[object]:
    """Each point once, somewhere, for each kind of handler; the slow ones are the first, the third and the rest."""
    found: list[object] = []
    for variant in VARIANTS:
        for point in sorted(POINTS.keys() - ELSEWHERE):
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
def test_a_kill_anywhere_loses_nothing_and_repeats_nothing(
    new_world: NewWorld, seed: int, variant: str, point: str, visit: int | None
) -> None:
    dice = random.Random(seed)
    app, waiting, check = VARIANTS[variant]
    visit = visit or dice.randint(1, VISITS.get(point, OFTEN))
    while True:
        world = new_world(app, TIDEGATE_TEST_TOIL=TOIL)
        world.append("entries", entries(seed, COUNT, waiting=waiting))
        life = world.live(f"{point}:kill@{visit}", until_end=point != "store.flush")
        if life.wait() == KILLED:
            break
        assert visit > 1, world.told(f"{point} did not kill the worker: {life.output}")
        visit //= 2  # how often a life commits depends on the machine; this one was over before
    assert world.struck.total() == 1, world.told("something else killed the worker")
    again = world.live(f"{dice.choice(sorted(POINTS))}:kill@{dice.randint(1, 20)}")  # if it comes so far
    assert again.wait() in (0, KILLED), world.told(again.output)
    world.drain()

    check(world, world.look())


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_kill_after_the_other_loses_nothing_and_repeats_nothing(
    new_world: NewWorld, seed: int, variant: str
) -> None:
    """Each life ends soon after the one before: what a life only notes when it opens must survive its early end."""
    dice = random.Random(seed)
    app, waiting, check = VARIANTS[variant]
    world = new_world(app, TIDEGATE_TEST_TOIL=TOIL)
    world.append("entries", entries(seed, COUNT, waiting=waiting))

    early = ["handler.before", "commit.appending", "commit.appended", "commit.applied", "recovery.marker"]
    for _ in range(12):
        point = dice.choice(early)
        life = world.live(f"{point}:kill@{dice.randint(1, VISITS.get(point, 6))}")
        assert life.wait() in (0, KILLED), world.told(life.output)
    assert world.struck.total() >= 6, world.told("too few kills")
    world.drain()

    check(world, world.look())


@pytest.mark.parametrize("visit", [3, 9])
def test_a_transaction_that_a_power_cut_has_torn_is_as_if_it_had_never_been(
    new_world: NewWorld, seed: int, visit: int
) -> None:
    """Written, not synced, and only a part of it on the disk: nobody was told of it, and it is done again."""
    dice = random.Random(seed)
    world = new_world("ledger", TIDEGATE_TEST_TOIL=TOIL)
    world.append("entries", entries(seed, COUNT))
    for _ in range(3):
        world.suffer(f"log.written:kill@{visit}")
        newest = max((world.data / "log").glob("*.log"), key=lambda file: file.stat().st_mtime_ns)
        os.truncate(newest, newest.stat().st_size - dice.randint(1, 30))
    world.drain()
    oracle.check_ledger(world, world.look())


def test_the_command_itself_survives_kill_9(new_world: NewWorld, seed: int) -> None:
    """`tidegate worker` as anybody starts it, in a process that imported nothing before."""
    world = new_world("ledger")
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

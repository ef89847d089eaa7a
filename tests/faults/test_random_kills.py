"""The Tinder services under kill -9 at random moments, with likes coming in all the time: at the end, no difference."""

from __future__ import annotations

import random
import sys
import time

import pytest

from examples.tinder_match.events import Like, Match
from tests.faults.conftest import NewEmbeddedWorld
from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.world import World

TINDER = "examples.tinder_match:app"
ENOUGH = 2000
"""Fewer likes may hold no match at all."""
FEED = "tests.faults.support.feed:send_likes"


def kill_at_random(world: World, kills: int) -> None:
    """Each worker is killed at a random moment of its first second."""
    dice = random.Random(world.seed)
    while len(world.lives) < kills or len(world.acknowledged) < ENOUGH:
        life = world.live(until_end=False, feed=FEED, environment={"TIDEGATE_SEED": str(world.seed)})
        time.sleep(dice.choice((0.1, 0.3, 0.6, 1.5)) * dice.random() + 0.02)
        assert not life.over, world.with_seed(f"the worker ended by itself: {life.output}")
        life.kill()


@pytest.mark.timeout(800)
@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_random_kills_do_not_change_the_result(
    new_embedded_world: NewEmbeddedWorld, seed: int, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    world = new_embedded_world(TINDER)
    kill_at_random(world, kills)
    world.drain()

    picture = world.look()
    found = oracle.tinder_differences(picture)
    likes, matches = picture.values("likes", Like), picture.values("matches", Match)
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {seed}: {len(world.lives) - 1} kills, {len(likes):,} likes, {len(matches):,} matches, "
            f"{len(found)} differences\n"
        )
    assert not found, world.with_seed("\n".join(found[:10]))
    ids = [like.id for like in likes]
    assert len(ids) == len(set(ids)), world.with_seed("a like is in the log twice")
    lost = set(world.acknowledged) - set(ids)
    assert not lost, world.with_seed(f"{len(lost)} acknowledged likes are not in the log: {sorted(lost)[:5]}")
    assert matches, world.with_seed("there was no match: the test shows nothing")
    oracle.check_engine(world, picture)


STORMS = {
    "ledger": (oracle.check_ledger, 0.3),
    "alarms": (oracle.check_alarms, 0.3),
    "chained": (oracle.check_chained, 0.0),
    "cycle": (oracle.check_cycle, 0.0),
    "shuffled": (oracle.check_shuffled, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("app", STORMS)
def test_random_kills_do_not_change_the_result_of(new_embedded_world: NewEmbeddedWorld, seed: int, app: str) -> None:
    """Waiting handlers, timers, services in a row and in a circle: killed at any moment, not only at named points."""
    dice = random.Random(seed)
    check, waiting = STORMS[app]
    world = new_embedded_world(app, TIDEGATE_TEST_TOIL="0.0005")
    world.append("entries", entries(seed, 3000, waiting=waiting, longest=0.05, in_order=True))
    for _ in range(25):
        life = world.live(until_end=False)
        time.sleep(0.1 + 0.3 * dice.random())
        assert not life.over, world.with_seed(f"the worker ended by itself: {life.output}")
        life.kill()
    world.drain()
    check(world, world.look())

"""Tests with kill -9 on every log: one kill at a named point, and successive kills."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.faults.support import oracle
from tests.faults.support.feed import entries
from tests.faults.support.world import KILLED, Picture, World

__all__ = ("COUNT", "OFTEN", "TOIL", "VARIANTS", "VISITS", "kill_once", "kill_repeatedly")

COUNT = 300
TOIL = "0.0003"
OFTEN = 15
"""A run of COUNT entries passes most points about this often."""
VISITS = {
    "input.read": 2,
    "task.opening": 2,
    "task.closing": 2,
    "recovery.started": 2,
    "recovery.marker": 2,
    "store.flush": 2,
    "handler.before": 30,
    "handler.after": 30,
    "timer.fired": 25,
    "group.rebalancing": 1,
    "group.assigned": 1,
}
"""But these so often."""

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


def kill_once(new_world: Callable[..., World], seed: int, variant: str, point: str, visit: int | None) -> None:
    """At this point, at this visit, or at any; then perhaps once more, somewhere; then all is done, and once."""
    dice = random.Random(seed)
    app, waiting, check = VARIANTS[variant]
    visit = visit or dice.randint(1, VISITS.get(point, OFTEN))
    while True:
        world = new_world(app, TIDEGATE_TEST_TOIL=TOIL)
        world.append("entries", entries(seed, COUNT, waiting=waiting))
        life = world.live(f"{point}:kill@{visit}", until_end=point != "store.flush")
        if life.wait() == KILLED:
            break
        assert visit > 1, world.with_seed(f"{point} did not kill the worker: {life.output}")
        visit //= 2  # how often a worker commits depends on the machine; this one ended before the point
    assert world.struck.total() == 1, world.with_seed("something else killed the worker")
    again = world.live(f"{dice.choice(world.points)}:kill@{dice.randint(1, 20)}")  # if it reaches the point
    assert again.wait() in (0, KILLED), world.with_seed(again.output)
    world.drain()

    check(world, world.look())


def kill_repeatedly(new_world: Callable[..., World], seed: int, variant: str) -> None:
    """Each worker ends soon after the previous one: what a worker writes only on opening must survive its early end."""
    dice = random.Random(seed)
    app, waiting, check = VARIANTS[variant]
    world = new_world(app, TIDEGATE_TEST_TOIL=TOIL)
    world.append("entries", entries(seed, COUNT, waiting=waiting))

    early = ["handler.before", "commit.appending", "commit.appended", "commit.applied", "recovery.marker"]
    early += [point for point in world.points if point.startswith("transaction.")]
    for _ in range(12):
        point = dice.choice(early)
        life = world.live(f"{point}:kill@{dice.randint(1, VISITS.get(point, 6))}")
        assert life.wait() in (0, KILLED), world.with_seed(life.output)
    assert world.struck.total() >= 6, world.with_seed("too few kills")
    world.drain()

    check(world, world.look())

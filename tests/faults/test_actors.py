"""Asks under kill -9, repeated under their idempotency keys: each has its effects once, and one reply for ever."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from tests.faults.conftest import NewWorld
from tests.faults.support import oracle
from tests.faults.support.bank import AUDITORS, Deposit, Posting
from tests.faults.support.kafka import KafkaWorld
from tests.faults.support.processes import WorkerProcess
from tests.faults.support.worker import renamed
from tests.faults.support.world import World
from tidegate import AskTimeoutError
from tidegate.client.remote_actors import connect_actors
from tidegate.errors import LogError, OwnerError
from tidegate.functions.messages import OutgoingMessage
from tidegate.host.actor_client import ActorClient
from tidegate.state.map_keys import plain_subkey

BANK = "tests.faults.support.bank:bank"
KEYS = 7
ASKERS = 8
POINTS = (
    "handler.before", "handler.after", "commit.frozen", "commit.appending", "log.written", "transaction.sent",
    "transaction.ending", "transaction.ended", "commit.appended", "commit.applied", "recovery.marker",
)  # fmt: skip


def flags(world: World) -> dict[str, Any]:
    found: dict[str, Any] = {"data": world.directory / "data", **world.flags}
    return {**found, "broker": world.broker} if isinstance(world, KafkaWorld) else found


def deposits(seed: int) -> Iterator[tuple[str, Deposit]]:
    dice = random.Random(seed)
    for id in count():
        yield f"k{dice.randrange(KEYS)}", Deposit(id, dice.randrange(1, 100), dice.choice((0.0, 0.0, 0.0, 0.02)))


class Asking:
    """Several who ask at the same time, and each of them until there is an answer; some ask again later."""

    def __init__(self, world: World) -> None:
        self._world, self._deposits = world, deposits(world.seed)
        self.enough = False
        self.wanted: dict[int, tuple[str, Deposit]] = {}
        self.replies: dict[int, Posting] = {}
        self.repeated = self.timed_out = 0
        self._dice = random.Random(world.seed)

    async def run(self) -> None:
        definition = renamed(self._world.definition.define(), self._world.prefix)
        async with connect_actors(definition, flags(self._world)) as post:
            await asyncio.gather(*(self._ask_on(post) for _ in range(ASKERS)))

    async def _ask_on(self, post: ActorClient) -> None:
        while not self.enough:
            key, message = next(self._deposits)
            self.wanted[message.id] = (key, message)
            self.replies[message.id] = await self._ask(post, key, message)
            if not self.repeated or self._dice.random() < 0.3:
                key, message = self.wanted[self._dice.choice(list(self.replies))]
                self.repeated += 1
                again, first = await self._ask(post, key, message), self.replies[message.id]
                assert again == first, self._world.with_seed(f"deposit {message.id}: {first} and then {again}")

    async def _ask(self, post: ActorClient, key: str, message: Deposit) -> Posting:
        while True:
            try:
                name = f"deposit-{message.id}"
                answered = await post.ask(OutgoingMessage("account", key, message, name), timeout=1.5)
            except (AskTimeoutError, LogError, OwnerError):
                self.timed_out += 1
            else:
                assert isinstance(answered.value, Posting)
                return answered.value


async def kill_under(world: World, asking: Asking, kills: int) -> None:
    """Successive workers, each killed at a point or at a random moment; then one without faults."""
    running = asyncio.create_task(asking.run())
    dice = random.Random(world.seed)
    points = [point for point in POINTS if point in world.points]
    for number in range(kills):
        point = points[(number // 2) % len(points)]
        if number % 2:
            life = world.live(until_end=False)
            if dice.random() < 0.7:  # the others are killed while they start
                await until_over(life, running, 60.0, "recovered")
            await until_over(life, running, dice.uniform(0.2, 1.5))
            life.kill()
        else:
            nth = 1 if point == "recovery.marker" else dice.randrange(1, 40)
            life = world.live(f"{point}:kill@{nth}", until_end=False)
            await until_over(life, running, 100.0)
            assert life.status == -9, world.with_seed(f"{point} was not reached: {life.output[-3000:]}")
    life = world.live(until_end=False)
    asking.enough = True
    await until_over(life, running, 120.0)
    assert not life.over, world.with_seed(f"the worker ended by itself: {life.output[-3000:]}")
    life.kill()
    running.cancel()
    (ended,) = await asyncio.gather(running, return_exceptions=True)
    if isinstance(ended, BaseException):
        raise ended


async def until_over(
    life: WorkerProcess, asking: asyncio.Task[None], seconds: float, output: str | None = None
) -> None:
    """Wait until the worker or the client has ended, the timeout has passed, or the worker has printed `output`."""
    now = asyncio.get_running_loop().time
    deadline = now() + seconds
    while not life.over and not asking.done() and now() < deadline and not (output and output in life.output):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def check(world: World, asking: Asking) -> None:
    world.drain()
    picture = world.look()
    expected: dict[str, list[Posting]] = {}
    wanted = asking.wanted
    found: Mapping[str, list[Posting]] = picture.by_key("postings", Posting)
    for key, there in found.items():
        total = 0
        for number, posting in enumerate(there, 1):
            total += wanted[posting.id][1].amount
            assert wanted[posting.id][0] == key, world.with_seed(f"deposit {posting.id} is in the account of {key}")
            expected.setdefault(key, []).append(Posting(id=posting.id, count=number, total=total))
    oracle.check_equal(world, "the postings", dict(found), expected)
    ids = [posting.id for there in found.values() for posting in there]
    oracle.check_equal(world, "the deposits that were posted", sorted(ids), sorted(wanted))
    oracle.check_equal(
        world, "the replies", asking.replies, {posting.id: posting for there in found.values() for posting in there}
    )
    notes: dict[str, dict[bytes, int]] = oracle.keyed_state(picture, "auditor")["times"]
    told = {int(plain_subkey(id)): times for known in notes.values() for id, times in known.items()}
    oracle.check_equal(world, "what the auditors were told", told, dict.fromkeys(wanted, 1))
    assert len(notes) == min(AUDITORS, len(wanted))
    oracle.check_engine(world, picture)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_asks_take_effect_once_and_get_one_reply_despite_kills(
    new_world: NewWorld, seed: int, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    world = new_world(BANK)
    asking = Asking(world)
    asyncio.run(kill_under(world, asking, kills))
    check(world, asking)
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {seed}: {kills} kills ({sum(world.struck.values())} at named points), {len(asking.wanted)} asks, "
            f"{asking.timed_out} timed out and were repeated, {asking.repeated} were asked again: no difference\n"
        )
    assert sum(world.struck.values()) == (kills + 1) // 2, world.with_seed("not every fault struck")
    assert asking.repeated, world.with_seed("nothing was asked again")

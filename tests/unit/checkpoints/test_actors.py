"""Messages and cuts: a message sent before the cut, from outside or by an actor, counts once after a restore."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from tests.unit.checkpoints.restore.test_restore import some_work
from tidegate import App, Context, Default, MapState, ValueState
from tidegate.testing import AppHarness

Seen = Annotated[MapState[int, int], Default(0)]


class Hop(msgspec.Struct, frozen=True):
    id: int
    left: int


class Add(msgspec.Struct, frozen=True):
    amount: int


def hopping(**options: Any) -> App:
    """An actor tells another one, and that one the first: a message with n hops left is handled n + 1 times by each."""
    app = App("hopping")
    events = app.topic("events", value_type=Hop, key=lambda hop: f"u{hop.id % 7}", partitions=3)
    second = app.actor("second", partitions=2)

    @app.process(events, **options)
    async def first(ctx: Context, hop: Hop, seen: Seen) -> None:
        seen[hop.id] += 1
        ctx.tell(second, f"i{hop.id % 5}", hop)

    @first.on(Hop)
    async def again(ctx: Context, hop: Hop, seen: Seen) -> None:
        seen[hop.id] += 1
        ctx.tell(second, f"i{hop.id % 5}", hop)

    @second.on(Hop)
    async def back(ctx: Context, hop: Hop, seen: Seen) -> None:
        seen[hop.id] += 1
        if hop.left:
            ctx.tell("first", f"u{hop.id % 7}", Hop(hop.id, hop.left - 1))

    @second.on(Add, reply=int)
    async def add(ctx: Context, message: Add, total: Annotated[ValueState[int], Default(0)]) -> None:
        total.value += message.amount
        ctx.reply(total.value)

    return app


def tell_all(harness: AppHarness, hops: list[Hop]) -> None:
    """Some arrive through the topic, some as tells to one actor, some to the other."""
    for hop in hops:
        if hop.id % 3 == 0:
            harness.send("events", hop, settle=False)
        elif hop.id % 3 == 1:
            harness.tell("first", f"u{hop.id % 7}", hop, settle=False)
        else:
            harness.tell("second", f"i{hop.id % 5}", hop, settle=False)


def check(harness: AppHarness, sent: list[Hop]) -> None:
    """Both actors count each hop, until no hop is left."""
    for key in {hop.id % 7 for hop in sent}:
        mine = [hop for hop in sent if hop.id % 7 == key]
        counts = {hop.id: hop.left + (hop.id % 3 != 2) for hop in mine}
        assert harness.state("first", "seen", f"u{key}") == {id: count for id, count in counts.items() if count}
    for key in {hop.id % 5 for hop in sent}:
        expected = {hop.id: hop.left + 1 for hop in sent if hop.id % 5 == key}
        assert harness.state("second", "seen", f"i{key}") == expected


def hops(start: int, count: int) -> list[Hop]:
    return [Hop(n, n % 4) for n in range(start, start + count)]


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))])
@pytest.mark.parametrize("partitions", [None, 1, 3, 8])
def test_messages_sent_before_or_after_a_barrier_are_handled_once(
    tmp_path: Path, seed: int, partitions: int | None
) -> None:
    rng = random.Random(seed)
    with AppHarness(hopping(), checkpoints=tmp_path) as harness:
        sent = hops(0, 60)
        tell_all(harness, sent[:30])
        some_work(harness, rng)
        tell_all(harness, sent[30:])
        some_work(harness, rng)
        harness.checkpoint("cut")
        after = hops(60, 30)
        tell_all(harness, after)
        some_work(harness, rng)
        harness.restore("cut", partitions=partitions)
        harness.settle()
        check(harness, [*sent, *after])


@pytest.mark.parametrize("partitions", [None, 5])
def test_idempotency_keys_are_known_after_a_restore(tmp_path: Path, partitions: int | None) -> None:
    with AppHarness(hopping(parallelism=2), checkpoints=tmp_path) as harness:
        first = [harness.ask("second", f"i{n}", Add(n), idempotency_key="a") for n in range(5)]
        harness.checkpoint("cut")
        harness.restore("cut", partitions=partitions)
        again = [harness.ask("second", f"i{n}", Add(n), idempotency_key="a") for n in range(5)]
        assert again == first
        assert [harness.ask("second", f"i{n}", Add(1)) for n in range(5)] == [total + 1 for total in first]


def test_replies_are_kept_for_a_time_and_mailboxes_as_other_topics(tmp_path: Path) -> None:
    with AppHarness(hopping(), checkpoints=tmp_path, checkpoint_interval=60.0) as harness:
        specs = {spec.name: spec for spec in harness.engine.plan.specs}
        assert specs["hopping.replies"].retention_ms == 3_600_000
        assert specs["hopping.second.mailbox"].retention_ms == specs["events"].retention_ms

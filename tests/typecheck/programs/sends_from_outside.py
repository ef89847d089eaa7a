"""A program sends to topics and asks actors beside the worker."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, Posted, Service, Topic
from tidegate.testing import AppHarness


class Click(msgspec.Struct, frozen=True):
    user: str


async def replay(topic: Topic[Click], users: list[str]) -> int | None:
    await topic.send_many([Click(user) for user in users])
    return await topic.send(Click("last"), key="last", timestamp=1_700_000_000_000, headers={"by": b"replay"})


async def nudge(app: App, service: Service[str]) -> Posted:
    async with app.connected():
        return await service.tell("ann", Click("ann"), idempotency_key="once")


app = App("shop", commit_interval=0.1, data="./data", log_level="info")
clicks = app.topic("clicks", value_type=Click, key="user", partitions=2, retention=3600, compact=False)
clicker = app.actor("clicker", partitions=2)


@clicker.on(Click)
async def clicked(ctx: Context, message: Click) -> None:
    ctx.timers.cancel(message.user)


async def both() -> None:
    await replay(clicks, ["ann", "bob"])
    await nudge(app, clicker)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(clicks, Click("ann"))
        assert [click.user for click in harness.outputs(clicks)] == ["ann"]

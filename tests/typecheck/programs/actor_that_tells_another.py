"""Actors of two types of keys tell each other."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, Service, ValueState
from tidegate.testing import AppHarness


class Deposit(msgspec.Struct, frozen=True):
    cents: int


class Booked(msgspec.Struct, frozen=True):
    who: str
    cents: int


app = App("bank")
account: Service[str] = app.actor("account", key_type=str)
branch = app.actor("branch", key_type=int)


@account.on(Deposit)
async def deposit(ctx: Context[str], message: Deposit, cents: Annotated[ValueState[int], Default(0)]) -> None:
    cents.value += message.cents
    ctx.tell(branch, len(ctx.key), Booked(ctx.key, message.cents))
    ctx.tell("branch", 99, Booked(ctx.key, message.cents), timestamp=ctx.timestamp)


@branch.on(Booked)
async def booked(ctx: Context[int], message: Booked, total: Annotated[ValueState[int], Default(0)]) -> None:
    total.value += message.cents + ctx.key


def main() -> None:
    with AppHarness(app) as harness:
        harness.tell(account, "ann", Deposit(5))
        assert harness.state(branch, "total", 3) == 8
        assert harness.told(branch)[0] == (3, Booked("ann", 5))

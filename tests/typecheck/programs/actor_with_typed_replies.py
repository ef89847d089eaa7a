"""A handler whose context names what it replies."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, Request, ValueState
from tidegate.testing import AppHarness


class Balance(msgspec.Struct, frozen=True):
    cents: int


class Withdraw(msgspec.Struct, Request[Balance], frozen=True):
    cents: int


class Deposit(msgspec.Struct, frozen=True):
    cents: int


app = App("bank")
account = app.actor("account")
Cents = Annotated[ValueState[int], Default(0)]


@account.on(Deposit)
async def deposit(ctx: Context, message: Deposit, cents: Cents) -> None:
    cents.value += message.cents


@account.on(Withdraw, reply=Balance)
async def withdraw(ctx: Context[str, Balance], message: Withdraw, cents: Cents) -> None:
    cents.value -= message.cents
    ctx.reply(Balance(cents.value))


def main() -> None:
    with AppHarness(app) as harness:
        balance = harness.ask(account, "ann", Withdraw(3))
        assert balance.cents + 3 == 0

"""An actor that is told and asked: the request names its reply."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, RejectedError, Request, ValueState
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


@account.on(Withdraw)
async def withdraw(ctx: Context, message: Withdraw, cents: Cents) -> None:
    if cents.value < message.cents:
        raise RejectedError(f"{ctx.key} has {cents.value}")
    cents.value -= message.cents
    ctx.reply(Balance(cents.value))


async def pay(customer: str) -> int:
    await account.tell(customer, Deposit(5))
    balance = await account.ask(customer, Withdraw(3), timeout=5.0, idempotency_key="x")
    known: Balance = await account.ask(customer, Withdraw(0))
    return balance.cents + known.cents


def main() -> None:
    with AppHarness(app) as harness:
        harness.tell(account, "ann", Deposit(5))
        assert harness.ask(account, "ann", Withdraw(3)).cents == 2
        assert harness.ask("account", "ann", Withdraw(1)) == Balance(1)

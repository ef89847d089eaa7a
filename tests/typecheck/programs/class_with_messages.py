"""A class whose methods take messages."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate import App, Context, Default, ProcessFunction, Request, ValueState, on
from tidegate.testing import AppHarness


class Balance(msgspec.Struct, frozen=True):
    cents: int


class Withdraw(msgspec.Struct, Request[Balance], frozen=True):
    cents: int


class Deposit(msgspec.Struct, frozen=True):
    cents: int


class Account(ProcessFunction[None, None]):
    cents: Annotated[ValueState[int], Default(0)]

    @on(Deposit)
    async def deposit(self, ctx: Context, message: Deposit) -> None:
        self.cents.value += message.cents

    @on(Withdraw, reply=Balance)
    def withdraw(self, ctx: Context[Any, Balance], message: Withdraw) -> None:
        self.cents.value -= message.cents
        ctx.reply(Balance(self.cents.value))


app = App("bank")
account = app.actor(Account)
second = app.actor(Account(), name="second", key_type=int)


def main() -> None:
    with AppHarness(app) as harness:
        harness.tell(account, "ann", Deposit(5))
        assert harness.ask(account, "ann", Withdraw(3)).cents == 2
        assert harness.ask(second, 7, Withdraw(3)).cents == -3

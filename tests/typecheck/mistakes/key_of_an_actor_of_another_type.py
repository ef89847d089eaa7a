"""A handler says that keys are numbers, and its service that they are text."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidegate import App, Context, Default, Request, ValueState


class Balance(msgspec.Struct, frozen=True):
    cents: int


class Withdraw(msgspec.Struct, Request[Balance], frozen=True):
    cents: int


class Deposit(msgspec.Struct, frozen=True):
    cents: int


app = App("bank")
account = app.actor("account")


@account.on(Deposit)  # mistake: keys are str
async def deposit(ctx: Context[int], message: Deposit, cents: Annotated[ValueState[int], Default(0)]) -> None:
    cents.value += message.cents

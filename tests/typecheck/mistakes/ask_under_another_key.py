"""An actor with text keys is asked under a number."""

from __future__ import annotations

import msgspec

from tidegate import App, Request


class Balance(msgspec.Struct, frozen=True):
    cents: int


class Withdraw(msgspec.Struct, Request[Balance], frozen=True):
    cents: int


class Deposit(msgspec.Struct, frozen=True):
    cents: int


app = App("bank")
account = app.actor("account")


async def withdraw(number: int) -> Balance:
    return await account.ask(number, Withdraw(3))  # mistake: keys are str

"""An actor with number keys is told under a text."""

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


cashier = app.actor("cashier", key_type=int)


async def deposit(name: str) -> None:
    await cashier.tell(name, Deposit(3))  # mistake: keys are int

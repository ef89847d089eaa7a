"""A handler tells an actor with number keys under a text."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, Request


class Balance(msgspec.Struct, frozen=True):
    cents: int


class Withdraw(msgspec.Struct, Request[Balance], frozen=True):
    cents: int


class Deposit(msgspec.Struct, frozen=True):
    cents: int


app = App("bank")
account = app.actor("account")


cashier = app.actor("cashier", key_type=int)


@account.on(Deposit)
async def deposit(ctx: Context[str], message: Deposit) -> None:
    ctx.tell(cashier, ctx.key, message)  # mistake: its keys are int

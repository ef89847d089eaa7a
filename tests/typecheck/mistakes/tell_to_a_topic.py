"""Topics are emitted to, services are told."""

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


ledger = app.topic("ledger", value_type=Deposit)


@account.on(Deposit)
async def deposit(ctx: Context, message: Deposit) -> None:
    ctx.tell(ledger, ctx.key, message)  # mistake: emit it

"""A handler is registered for one message, and takes another."""

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


@account.on(Deposit)  # mistake: it takes withdrawals
async def deposit(ctx: Context, message: Withdraw) -> None:
    ctx.reply(Balance(message.cents))

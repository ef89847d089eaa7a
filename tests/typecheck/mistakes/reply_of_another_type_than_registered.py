"""A handler's context names another reply than it is registered with."""

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


@account.on(Withdraw, reply=Balance)  # mistake: the handler replies with an int
async def withdraw(ctx: Context[str, int], message: Withdraw) -> None:
    ctx.reply(message.cents)

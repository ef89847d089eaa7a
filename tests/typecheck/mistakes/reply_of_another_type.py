"""A handler whose context names the reply gives another one."""

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


@account.on(Withdraw, reply=Balance)
async def withdraw(ctx: Context[str, Balance], message: Withdraw) -> None:
    ctx.reply(message.cents)  # mistake: a Balance

"""A method is registered for one message, and takes another."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, ProcessFunction, Request, on


class Balance(msgspec.Struct, frozen=True):
    cents: int


class Withdraw(msgspec.Struct, Request[Balance], frozen=True):
    cents: int


class Deposit(msgspec.Struct, frozen=True):
    cents: int


app = App("bank")
account = app.actor("account")


class Vault(ProcessFunction[None, None]):
    @on(Deposit)  # mistake: it takes withdrawals
    async def deposit(self, ctx: Context, message: Withdraw) -> None:
        ctx.reply(Balance(message.cents))


vault = app.actor(Vault)

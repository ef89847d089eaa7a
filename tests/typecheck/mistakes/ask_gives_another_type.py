"""The reply to a request is of the type that the request names."""

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


async def withdraw(key: str) -> int:
    cents: int = await account.ask(key, Withdraw(3))  # mistake: a Balance
    return cents

"""An app of actors whose every effect can be counted: accounts that receive asks, and an auditor that gets their tells.

Each deposit is once in its account, once among the postings, and once at the auditor, whatever was killed and however
often it was asked for.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from tidegate import App, Context, Default, MapState, ValueState

__all__ = ("AUDITORS", "Deposit", "Noted", "Posting", "account", "auditor", "bank")

AUDITORS = 3


class Deposit(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    amount: int
    wait: float = 0.0


class Noted(msgspec.Struct, frozen=True):
    id: int


class Posting(msgspec.Struct, frozen=True):
    """A deposit's effect, and the reply to it."""

    id: int
    count: int
    total: int


bank = App("bank", partitions=2)
postings = bank.topic("postings", value_type=Posting)
account = bank.actor("account", to=postings)
auditor = bank.actor("auditor")


@account.on(Deposit, reply=Posting)
async def deposit(
    ctx: Context,
    message: Deposit,
    count: Annotated[ValueState[int], Default(0)],
    total: Annotated[ValueState[int], Default(0)],
) -> None:
    count.value += 1
    total.value += message.amount
    if message.wait:
        await asyncio.sleep(message.wait)
    posting = Posting(id=message.id, count=count.value, total=total.value)
    ctx.emit(posting)
    ctx.tell(auditor, f"auditor-{message.id % AUDITORS}", Noted(message.id))
    ctx.reply(posting)


@auditor.on(Noted)
async def note(ctx: Context, message: Noted, times: Annotated[MapState[int, int], Default(0)]) -> None:
    times[message.id] += 1

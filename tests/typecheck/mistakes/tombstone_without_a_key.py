"""A tombstone is sent, and nobody says for which key."""

from __future__ import annotations

import msgspec

from tidegate import App


class Customer(msgspec.Struct, frozen=True):
    id: str


app = App("crm")
customers = app.topic("customers", value_type=Customer, key="id", compact=True)


async def forget() -> None:
    await customers.send(None)  # mistake: a tombstone needs key=

"""A handler that takes tombstones uses its event as if there were none."""

from __future__ import annotations

import msgspec

from tidegate import App, Context


class Customer(msgspec.Struct, frozen=True):
    id: str


app = App("crm")
customers = app.topic("customers", value_type=Customer, key="id", compact=True)
names = app.topic("names", value_type=str)


@app.process(customers, to=names)
def name(ctx: Context[str], customer: Customer | None) -> None:
    ctx.emit(customer.id, to=names)  # mistake: it is None for a tombstone

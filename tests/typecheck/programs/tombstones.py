"""A table: handlers take tombstones as None, delete keys, and programs send tombstones under a key."""

from __future__ import annotations

import msgspec

from tidegate import App, Context, Topic, ValueState
from tidegate.testing import AppHarness


class Customer(msgspec.Struct, frozen=True):
    id: str
    plan: str


app = App("crm")
customers = app.topic("customers", value_type=Customer, key="id", compact=True)
paying = app.topic("paying", value_type=Customer, key="id", compact=True)


@app.process(customers, to=paying)
def keep(ctx: Context[str], customer: Customer | None, known: ValueState[Customer | None]) -> None:
    known.value = customer
    if customer is None or customer.plan == "free":
        ctx.delete(ctx.key, to=paying)
    else:
        ctx.emit(customer, to=paying)


async def forget(topic: Topic[Customer], customer: Customer) -> None:
    await topic.send(None, key=customer.id)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(customers, Customer("ann", "pro"))
        harness.send(customers, None, key="ann")
        assert harness.outputs(paying) == [Customer("ann", "pro"), None]

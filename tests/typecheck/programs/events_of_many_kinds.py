"""Events may be dataclasses, typed dicts, named tuples, models, lists and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from pydantic import BaseModel

from tidegate import App, Context
from tidegate.testing import AppHarness


@dataclass(frozen=True)
class Order:
    customer: str
    cents: int


class Payment(TypedDict):
    customer: str
    cents: int


class Parcel(NamedTuple):
    customer: str
    grams: int


class Refund(BaseModel):
    customer: str
    cents: int


app = App("shop")
orders = app.topic("orders", value_type=Order, key="customer")
payments = app.topic("payments", value_type=Payment, key=lambda payment: payment["customer"])
parcels = app.topic("parcels", value_type=Parcel, key=lambda parcel: parcel.customer)
refunds = app.topic("refunds", value_type=Refund, key="customer")
sizes = app.topic("sizes", value_type=list[int], key=sum)
sums = app.topic("sums", value_type=int)


@app.process(orders, refunds, to=sums)
async def money(ctx: Context, event: Order | Refund) -> None:
    ctx.emit(event.cents, to=sums)


@app.process(payments, to=sums)
async def paid(ctx: Context, payment: Payment) -> None:
    ctx.emit(payment["cents"], to=sums)


@app.process(parcels, to=sums)
async def sent(ctx: Context, parcel: Parcel) -> None:
    ctx.emit(parcel.grams, to=sums)


@app.process(sizes, to=sums)
async def measured(ctx: Context, size: list[int]) -> None:
    ctx.emit(max(size), to=sums)


def main() -> None:
    with AppHarness(app) as harness:
        harness.send(orders, Order("ann", 1))
        harness.send(payments, Payment(customer="ann", cents=2))
        harness.send(parcels, Parcel("ann", 3))
        harness.send(refunds, Refund(customer="ann", cents=4))
        harness.send(sizes, [5, 4])
        assert sorted(harness.outputs(sums)) == [1, 2, 3, 4, 5]

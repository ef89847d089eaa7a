"""A shop on Faust, before it moves: docs/from-faust.md shows it, and test_faust.py runs it."""

# ruff: noqa: T201
from __future__ import annotations

import faust

app = faust.App("shop", broker="kafka://127.0.0.1:9092", topic_partitions=4)


class Order(faust.Record):
    customer: str
    cents: int


class Spender(faust.Record):
    customer: str
    cents: int


orders = app.topic("orders", key_type=str, value_type=Order)
spenders = app.topic("spenders", key_type=str, value_type=Spender)
spent = app.Table("spent", default=int)


@app.agent(orders)
async def watch(stream: faust.StreamT[Order]) -> None:
    async for order in stream:
        before = spent[order.customer]
        spent[order.customer] = before + order.cents
        if before < 10_000 <= spent[order.customer]:
            await spenders.send(key=order.customer, value=Spender(order.customer, spent[order.customer]))


@app.agent(spenders)
async def congratulate(stream: faust.StreamT[Spender]) -> None:
    async for spender in stream:
        print(f"{spender.customer} has spent {spender.cents} cents", flush=True)

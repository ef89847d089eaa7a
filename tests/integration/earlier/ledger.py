"""An app with every kind of state, timers, a shuffle, a mailbox and dead letters. It wrote the data beside it."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from typing import Annotated

import msgspec

from tidegate import (
    DEAD_LETTER,
    TTL,
    Aggregate,
    AggregateFunction,
    AggregatingState,
    App,
    Context,
    Default,
    EventTime,
    ListState,
    MapState,
    OperatorState,
    Reduce,
    ReducingState,
    RejectedError,
    ValueState,
)

HOUR = 3_600_000
ZONE = timezone(timedelta(hours=2))


class Order(msgspec.Struct, frozen=True):
    id: int
    customer: str
    item: str
    amount: int
    at: int


class Deposit(msgspec.Struct, frozen=True):
    amount: int


class Withdraw(msgspec.Struct, frozen=True):
    amount: int


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create(self) -> tuple[int, int]:
        return 0, 0

    def add(self, accumulator: tuple[int, int], item: int) -> tuple[int, int]:
        return accumulator[0] + item, accumulator[1] + 1

    def result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


app = App("ledger", partitions=2, time=EventTime("at"))
orders = app.topic("ledger-orders", value_type=Order, key="customer")
totals = app.topic("ledger-totals", value_type=dict)
account = app.actor("account", partitions=2, remember=timedelta(days=30_000))


@app.process(orders, to=totals, errors=DEAD_LETTER)
async def customers(
    ctx: Context,
    order: Order,
    total: Annotated[ValueState[int], Default(0)],
    recent: ListState[str],
    by_number: Annotated[MapState[int, int], Default(0)],
    by_item: Annotated[MapState[str, int], Default(0)],
    by_pair: MapState[tuple[str, int], str],
    by_time: MapState[datetime, int],
    by_raw: MapState[bytes, int],
    highest: Annotated[ReducingState[int], Reduce(max)],
    mean: Annotated[AggregatingState[int, float], Aggregate(Mean())],
    odd: OperatorState[int],
    lasting: Annotated[MapState[int, str], TTL(days=30_000)],
    brief: Annotated[ValueState[str | None], TTL(seconds=1)],
    within: Annotated[MapState[str, int], TTL(hours=1, time="event")],
) -> None:
    if order.item == "broken":
        raise ValueError("it is broken")
    total.value += order.amount
    recent.append(order.item)
    if len(recent) > 3:
        recent.popleft()
    number = order.amount % 41 - 20
    by_number[number] += 1
    by_number[number * 10**20] = order.id
    by_item[order.item] += 1
    by_pair[order.item, number] = order.customer
    by_time[datetime.fromtimestamp(order.at / 1000, ZONE)] = order.id
    by_raw[bytes([order.id % 256, 0])] = order.id
    highest.add(order.amount)
    mean.add(order.amount)
    if order.amount % 10 == 0:
        odd.append(order.id)
    lasting[number] = order.item
    brief.value = order.item
    within[order.item] = order.amount
    if len(by_item) > 5:
        del by_item[min(by_item)]
    ctx.timers.at(order.at + HOUR, name="later")
    ctx.timers.after(timedelta(seconds=60), name="soon", time="processing")
    ctx.timers.after(timedelta(days=30_000), name="never", time="processing")
    ctx.tell(account, order.customer, Deposit(order.amount))
    ctx.emit({"total": total.value, "order": order.id}, key=order.customer)


@customers.on_timer("later")
async def later(ctx: Context, total: Annotated[ValueState[int], Default(0)]) -> None:
    ctx.emit({"later": ctx.timestamp, "total": total.value}, key=ctx.key)


@customers.on_timer("soon")
async def soon(ctx: Context, sooner: Annotated[ValueState[int], Default(0)]) -> None:
    sooner.value += 1


@customers.on_timer("never")
async def never(ctx: Context) -> None:
    raise AssertionError("a timer of the year 2108 fires")


@app.process(orders, key_by="item")
async def items(ctx: Context, order: Order, seen: Annotated[MapState[int, int], Default(0)]) -> None:
    if "LEDGER_SLOW" in os.environ:
        time.sleep(0.02)  # noqa: ASYNC251  so that records are in flight
    seen[-order.id] += 1


@account.on(Deposit)
async def deposit(ctx: Context, message: Deposit, balance: Annotated[ValueState[int], Default(0)]) -> None:
    balance.value += message.amount


@account.on(Withdraw, reply=int)
async def withdraw(ctx: Context, message: Withdraw, balance: Annotated[ValueState[int], Default(0)]) -> None:
    if message.amount > balance.value:
        raise RejectedError(f"{ctx.key} has only {balance.value}")
    balance.value -= message.amount
    ctx.reply(balance.value)

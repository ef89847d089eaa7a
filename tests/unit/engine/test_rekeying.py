"""key_by: records are placed anew, by another key, through an internal topic."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidegate import DEAD_LETTER, App, Context, EventTime, MapState, Monotonic, Timer, ValueState
from tidegate.errors import DefinitionError, ServiceFailedError
from tidegate.testing import AppHarness


class Order(msgspec.Struct, frozen=True):
    id: int
    customer: str
    at: int = 0


class Payment(msgspec.Struct, frozen=True):
    payer: str
    amount: int


def by_customer(**options: Any) -> tuple[App, Any, Any]:
    app = App("app")
    orders = app.topic("orders", value_type=Order, key="id", partitions=3, **options.pop("topic", {}))

    @app.process(orders, key_by="customer", **options)
    async def customers(ctx: Context, order: Order, seen: MapState[int, int]) -> None:
        assert ctx.key == order.customer
        seen[order.id] = ctx.timestamp

    return app, orders, customers


def test_records_reach_the_actor_of_their_new_key() -> None:
    app, orders, customers = by_customer()
    with AppHarness(app) as harness:
        for number in range(30):
            harness.send(orders, Order(number, f"c{number % 4}"), timestamp=number)
        for customer in range(4):
            expected = {number: number for number in range(30) if number % 4 == customer}
            assert harness.state(customers, "seen", f"c{customer}") == expected


def test_records_without_a_key_get_one() -> None:
    app, orders, customers = by_customer()
    with AppHarness(app) as harness:
        harness.send_raw(orders, key=None, value=b'{"id":1,"customer":"ann"}', timestamp=5)
        assert harness.state(customers, "seen", "ann") == {1: 5}


def test_records_in_the_wrong_partition_do_no_harm() -> None:
    app, orders, customers = by_customer()
    with AppHarness(app) as harness:
        for partition in range(3):
            raw = b'{"id":%d,"customer":"ann"}' % partition
            harness.send_raw(orders, key=b"x", value=raw, partition=partition, timestamp=5)
        assert harness.state(customers, "seen", "ann") == {0: 5, 1: 5, 2: 5}


def test_the_time_that_was_found_is_kept() -> None:
    app, orders, customers = by_customer(topic={"time": EventTime("at"), "watermark": Monotonic()})
    with AppHarness(app) as harness:
        harness.send(orders, Order(1, "ann", at=77), timestamp=5)
        assert harness.state(customers, "seen", "ann") == {1: 77}


def test_headers_and_origin_are_those_of_the_original_record() -> None:
    app = App("app")
    orders = app.topic("orders", value_type=Order, key="id")
    seen: list[Any] = []

    @app.process(orders, key_by=lambda order: order.customer)
    async def customers(ctx: Context, order: Order) -> None:
        seen.append((ctx.origin, tuple(ctx.headers)))

    with AppHarness(app) as harness:
        harness.send(orders, Order(1, "ann"), headers=[("trace", b"1")])
        harness.send(orders, Order(2, "bob"))
        assert seen == [(("orders", 0, 0), (("trace", b"1"),)), (("orders", 0, 2), ())]


def test_several_inputs_have_key_functions_of_their_own() -> None:
    app = App("app")
    orders = app.topic("orders", value_type=Order, key="id", partitions=2)
    payments = app.topic("payments", value_type=Payment, partitions=5)

    @app.process(orders, payments, key_by={orders: "customer", payments: lambda payment: payment.payer})
    async def accounts(ctx: Context, event: Order | Payment, log: MapState[str, int]) -> None:
        log[type(event).__name__] = log.get(type(event).__name__, 0) + 1

    with AppHarness(app) as harness:
        for number in range(10):
            harness.send(orders, Order(number, f"c{number % 2}"))
            harness.send(payments, Payment(f"c{number % 2}", 5), key=str(number))
        for customer in ("c0", "c1"):
            assert harness.state(accounts, "log", customer) == {"Order": 5, "Payment": 5}


def test_an_input_without_a_key_function_is_refused() -> None:
    app = App("app")
    orders, payments = app.topic("orders", value_type=Order), app.topic("payments", value_type=Payment)
    with pytest.raises(DefinitionError, match="payments"):

        @app.process(orders, payments, key_by={orders: "customer"})
        async def accounts(ctx: Context, event: Any) -> None: ...


def test_keys_may_be_of_another_type() -> None:
    app = App("app")
    orders = app.topic("orders", value_type=Order)
    seen: list[Any] = []

    @app.process(orders, key_by=lambda order: (order.customer, order.id), key_type=tuple[str, int])
    async def pairs(ctx: Context, order: Order, count: ValueState[int | None]) -> None:
        seen.append(ctx.key)
        count.value = 1

    with AppHarness(app, partitions=4) as harness:
        harness.send(orders, Order(7, "ann"), key="x")
        assert seen == [("ann", 7)]
        assert harness.state(pairs, "count", ("ann", 7)) == 1


def test_a_key_function_that_fails_goes_the_way_of_the_policy_with_the_original_record() -> None:
    app = App("app")
    orders = app.topic("orders", key="id")

    @app.process(orders, key_by=lambda order: order["customer"], errors=DEAD_LETTER)
    async def customers(ctx: Context, order: Any, count: ValueState[int | None]) -> None:
        count.value = order["id"]

    with AppHarness(app) as harness:
        harness.send(orders, {"id": 1, "customer": "ann"}, settle=False)
        harness.send(orders, {"id": 2}, settle=False)
        harness.send(orders, {"id": 3, "customer": None}, settle=False)
        harness.send(orders, {"id": 4, "customer": "bob"})
        letters = harness.dead_letters(customers)
        assert [letter.value for letter in letters] == [b'{"id":2}', b'{"id":3,"customer":null}']
        assert [letter.origin and letter.origin.topic for letter in letters] == ["orders", "orders"]
        assert [harness.state(customers, "count", name) for name in ("ann", "bob")] == [1, 4]


def test_a_key_function_that_fails_stops_the_service_by_default() -> None:
    app, orders, _ = by_customer()
    with AppHarness(app) as harness, pytest.raises(ServiceFailedError, match="orders"):
        harness.send_raw(orders, key=b"1", value=b'{"id":"x"}')


def test_a_record_is_placed_once_whatever_crashes() -> None:
    app = App("app")
    orders = app.topic("orders", key="id", partitions=2)

    @app.process(orders, key_by="customer")
    async def customers(ctx: Context, order: Any, count: ValueState[int | None]) -> None:
        count.value = (count.value or 0) + 1

    with AppHarness(app) as harness:
        for number in range(12):
            harness.send(orders, {"id": number, "customer": "ann"}, settle=False)
            harness.settle(commit=number % 3 == 0)
            if number % 4 == 0:
                harness.crash()
        harness.crash()
        assert harness.state(customers, "count", "ann") == 12


def test_two_services_may_partition_the_same_topic_by_different_keys() -> None:
    app = App("app")
    orders = app.topic("orders", value_type=Order)

    @app.process(orders, key_by="customer")
    async def customers(ctx: Context, order: Order, count: ValueState[int | None]) -> None:
        count.value = order.id

    @app.process(orders, key_by=lambda order: order.id % 2, key_type=int)
    async def parities(ctx: Context, order: Order, names: MapState[str, int]) -> None:
        names[order.customer] = ctx.key

    with AppHarness(app) as harness:
        for number in range(6):
            harness.send(orders, Order(number, f"c{number}"), key="k")
        assert harness.state(customers, "count", "c5") == 5
        assert harness.state(parities, "names", 1) == {"c1": 1, "c3": 1, "c5": 1}


def test_timers_work_behind_a_shuffle() -> None:
    app = App("app", watermark=Monotonic())
    orders = app.topic("orders", value_type=Order, partitions=3)
    fired: list[Any] = []

    @app.process(orders, key_by="customer")
    async def customers(ctx: Context, order: Order) -> None:
        ctx.timers.after(1, name="t")

    @customers.on_timer("t")
    async def due(ctx: Context, timer: Timer) -> None:
        fired.append((ctx.key, timer.at))

    with AppHarness(app) as harness:
        harness.send(orders, Order(1, "ann"), key="x", timestamp=1000)
        assert fired == []
        harness.finish()
        assert fired == [("ann", 2000)]

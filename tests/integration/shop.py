"""An app of two services in a row, whose state shows for every order how often it was counted."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.integration.commands import Project, Running, lines

__all__ = ("KafkaShop", "Shop")

_CODE = """
import msgspec
from typing import Annotated
from tidegate import App, Context, Default, MapState, ValueState

class Order(msgspec.Struct, frozen=True):
    id: int
    customer: str
    item: str

app = App("NAME", partitions=3)
orders = app.topic("NAME-orders", value_type=Order, key="customer")
sold = app.topic("NAME-sold", value_type=Order, key="item")
bills = app.topic("NAME-bills", value_type=int)

@app.process(orders, to=[sold, bills])
async def customers(ctx: Context, order: Order, count: Annotated[ValueState[int], Default(0)]) -> None:
    count.value += 1
    ctx.emit(order)
    ctx.emit(order.id, to=bills)

@app.process(sold)
async def items(ctx: Context, order: Order, seen: MapState[int, int]) -> None:
    seen[order.id] = seen.get(order.id, 0) + 1
"""


class Shop(Project):
    """On the embedded log, unless a broker is given."""

    def __init__(self, directory: Path, name: str = "shop") -> None:
        super().__init__(directory, shop=_CODE.replace("NAME", name))
        self.name = self.app = name
        self.sent = 0

    @property
    def orders(self) -> str:
        """The topic that is written from outside."""
        return f"{self.name}-orders"

    def call(self, app: str) -> None:
        """Give the app another id; its topics keep their names."""
        path = self.directory / "shop.py"
        path.write_text(path.read_text().replace(f'App("{self.app}"', f'App("{app}"'))
        self.app = app

    def order(self, count: int, **options: Any) -> None:
        orders = [self._order(number) for number in range(self.sent, self.sent + count)]
        self.run("send", "shop.py", self.orders, stdin=lines(orders), **options)
        self.sent += count

    def lines(self, start: int, end: int) -> list[str]:
        """Orders, as they are sent."""
        return [json.dumps(self._order(number)) for number in range(start, end)]

    @staticmethod
    def _order(number: int) -> dict[str, Any]:
        return {"id": number, "customer": f"c{number % 17}", "item": f"i{number % 11}"}

    def check(self, orders: Iterable[int] | None = None, **options: Any) -> None:
        """Every order was counted once by both services: all sent orders, or these."""
        expected = [self._order(number) for number in (range(self.sent) if orders is None else orders)]
        customers: dict[str, int] = {}
        items: dict[str, dict[str, int]] = {}
        for order in expected:
            customers[order["customer"]] = customers.get(order["customer"], 0) + 1
            items.setdefault(order["item"], {})[str(order["id"])] = 1
        assert self.state("customers", "count", **options) == customers
        assert self.state("items", "seen", **options) == items

    def state(self, service: str, state: str, **options: Any) -> dict[str, Any]:
        return {line["key"]: line["value"] for line in self.json("state", "list", "shop.py", service, state, **options)}

    def billed(self, **options: Any) -> list[int]:
        """What an outside reader gets."""
        return sorted(r["value"] for r in self.json("tail", "shop.py", f"{self.name}-bills", "--until-end", **options))

    def sold(self, count: int, **options: Any) -> None:
        """Wait until so many are on their way to the second service."""
        self.json("tail", "shop.py", f"{self.name}-sold", "--from-beginning", "--count", str(count), **options)

    def finish(self, **options: Any) -> str:
        """Handle all records, and return the worker's output."""
        return self.run("worker", "shop.py", "--until-end", **options).stderr


class KafkaShop(Shop):
    """On the broker, unless a command says otherwise."""

    def __init__(self, directory: Path, broker: str) -> None:
        super().__init__(directory, name=f"shop-{uuid.uuid4().hex[:8]}")
        self.broker = broker

    def start(self, *arguments: str, stdin: str | Path = "", program: str = "tidegate", **environment: str) -> Running:
        environment = {"TIDEGATE_BROKER": self.broker, "TIDEGATE_KAFKA_SESSION_TIMEOUT": "6", **environment}
        return super().start(*arguments, stdin=stdin, program=program, **environment)

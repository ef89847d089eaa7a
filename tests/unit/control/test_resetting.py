from __future__ import annotations

import pytest

from tidegate import DEAD_LETTER, App, Context
from tidegate.control.resetting import topics_to_empty
from tidegate.engine.plan import Plan

app = App("shop")
orders = app.topic("orders", value_type=dict)
parts = app.topic("parts", value_type=dict)
bills = app.topic("bills", value_type=dict)


@app.process(orders, to=parts)
async def split(ctx: Context, order: dict) -> None:  # type: ignore[type-arg]
    """orders → parts"""


@app.process(parts, to=bills, key_by="customer", errors=DEAD_LETTER)
async def bill(ctx: Context, part: dict) -> None:  # type: ignore[type-arg]
    """parts → bills"""


INTERNAL = {
    "shop.control",
    "shop.split.changelog",
    "shop.bill.changelog",
    "shop.bill.parts.by-key.changelog",
    "shop.bill.parts.by-key",
}


@pytest.fixture
def plan() -> Plan:
    definition = app.define()
    return Plan(definition.id, definition.services, definition.topics, definition.resolve().settings, {})


def existing(plan: Plan) -> set[str]:
    return {spec.name for spec in plan.specs} | {"shop.gone.changelog", "strange"}


def test_state_goes_and_what_lies_between_services(plan: Plan) -> None:
    gone = topics_to_empty(plan, existing(plan), outputs=False, everything=False)

    assert gone == INTERNAL | {"parts", "shop.gone.changelog"}


def test_outputs_go_on_request_dead_letters_included(plan: Plan) -> None:
    gone = topics_to_empty(plan, existing(plan), outputs=True, everything=False)

    assert gone == INTERNAL | {"parts", "bills", "shop.bill.dead-letters", "shop.gone.changelog"}


def test_everything_goes_on_request(plan: Plan) -> None:
    assert topics_to_empty(plan, existing(plan), outputs=False, everything=True) == existing(plan)


def test_what_is_not_there_cannot_go(plan: Plan) -> None:
    assert topics_to_empty(plan, {"orders"}, outputs=True, everything=False) == set()

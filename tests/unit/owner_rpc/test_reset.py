from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate import DEAD_LETTER, App, Context
from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.engine.topology.plan import Plan
from tidegate.errors import PartitionCountError
from tidegate.owner_rpc.reset import reset_app, topics_of, topics_to_empty
from tidegate.testing import MemoryLog

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


def test_a_reset_deletes_state_and_internal_topics(plan: Plan) -> None:
    gone = topics_to_empty(plan, existing(plan), outputs=False, everything=False)

    assert gone == INTERNAL | {"parts", "shop.gone.changelog"}


def test_a_reset_deletes_outputs_and_dead_letters_on_request(plan: Plan) -> None:
    gone = topics_to_empty(plan, existing(plan), outputs=True, everything=False)

    assert gone == INTERNAL | {"parts", "bills", "shop.bill.dead-letters", "shop.gone.changelog"}


def test_a_full_reset_deletes_everything(plan: Plan) -> None:
    assert topics_to_empty(plan, existing(plan), outputs=False, everything=True) == existing(plan)


def test_a_missing_topic_is_not_reset(plan: Plan) -> None:
    assert topics_to_empty(plan, {"orders"}, outputs=True, everything=False) == set()


async def test_a_topic_that_stays_and_does_not_fit_is_found_before_anything_goes(plan: Plan) -> None:
    log = MemoryLog()
    await log.start()
    await log.create([replace(spec, partitions=2) if spec.name == "orders" else spec for spec in plan.specs])
    before = await log.topics()
    stores = StateDirectory(None, app.define().resolve().settings)

    with pytest.raises(PartitionCountError, match="reset --all"):
        await reset_app(plan, log, stores, outputs=False, everything=False)

    assert await log.topics() == before
    await reset_app(plan, log, stores, outputs=False, everything=True)
    assert (await log.topics())["orders"].partitions == 4


def test_on_a_shared_log_only_the_apps_own_topics_are_reset(plan: Plan) -> None:
    own = {spec.name for spec in plan.specs} | {"shop.gone.changelog", "shop.gone.orders.by-key", "shop.requests"}
    others = {
        "strange",
        "shopping",
        "shop.window",  # somebody's topic, which is only called so
        "shop.window.requests",
        "shop.eu.control",
        "shop.eu.split.changelog",
        "shop.eu.bill.dead-letters",
    }

    assert topics_of(plan, own | others) == own
    assert topics_of(plan, others) == set()

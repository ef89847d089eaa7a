"""The deduplicator: the first of each id, per key, within a time."""

from __future__ import annotations

import msgspec
import pytest

from tidegate import App
from tidegate.testing import AppHarness
from tidegate_services import Deduplicator, Offer


class Order(msgspec.Struct, frozen=True):
    shop: str
    id: str
    n: int


def test_the_first_record_of_each_id_is_emitted_and_duplicates_go_aside() -> None:
    app = App("orders")
    orders = app.topic("orders", value_type=Order, key="shop")
    unique, doubles = app.topic("unique", value_type=Order), app.topic("doubles", value_type=Order)
    Deduplicator(app, within=3600, topic=orders, id="id", to=unique, duplicates=doubles)
    with AppHarness(app) as harness:
        sent = [("a", "1"), ("a", "2"), ("a", "1"), ("b", "1"), ("a", "2")]
        for n, (shop, id) in enumerate(sent):
            harness.send(orders, Order(shop, id, n))
        assert [order.n for order in harness.outputs(unique)] == [0, 1, 3]
        assert [order.n for order in harness.outputs(doubles)] == [2, 4]


def test_an_id_is_known_for_a_time_across_crashes_and_not_longer() -> None:
    app = App("times")
    deduplicator = Deduplicator(app, within=60)
    with AppHarness(app) as harness:
        first = harness.ask(deduplicator.service, "k", Offer("x"))
        harness.crash()
        harness.advance(seconds=50)
        again = harness.ask(deduplicator.service, "k", Offer("x"))
        assert (first.first, again.first) == (True, False)
        assert again.seen_at == first.seen_at
        harness.advance(seconds=11)  # a second sight does not make it live longer
        assert harness.ask(deduplicator.service, "k", Offer("x")).first


def test_an_event_without_an_id_goes_to_the_dead_letters() -> None:
    app = App("missing")
    events = app.topic("events", value_type=dict, key=lambda _: "k")
    unique = app.topic("unique", value_type=dict)
    deduplicator = Deduplicator(app, within=60, topic=events, id="id", to=unique)
    with AppHarness(app) as harness:
        harness.send(events, {"id": 1})
        harness.send(events, {})
        assert harness.outputs(unique) == [{"id": 1}]
        (letter,) = harness.dead_letters(deduplicator.service)
        assert letter.error_type == "KeyError"


def test_invalid_arguments_are_refused() -> None:
    app = App("refused")
    topic = app.topic("topic")
    with pytest.raises(ValueError, match="within must be more than 0"):
        Deduplicator(app, within=0)
    with pytest.raises(ValueError, match="give topic="):
        Deduplicator(app, within=1, id="id")
    with pytest.raises(ValueError, match="a topic needs id="):
        Deduplicator(app, within=1, topic=topic)

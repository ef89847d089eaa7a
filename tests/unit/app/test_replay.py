"""What a replay takes for the events of a service behind a shuffle with steps."""

from __future__ import annotations

import msgspec

from tidegate.codecs import codec_for
from tidegate.functions.declaration.handler_spec import HandlerSpec
from tidegate.functions.definition import InputSpec
from tidegate.functions.shuffle_steps import ShuffleSteps
from tidegate.functions.topics import TopicDefinition
from tidegate_app.actions.replay import _behind_its_shuffle, _through_its_shuffle


class Sale(msgspec.Struct, frozen=True):
    cents: int


SALES = TopicDefinition(name="sales", codec=codec_for(Sale), partitions=1)
STEPS = ShuffleSteps(filter=lambda sale: sale.cents > 0, project=lambda sale: sale.cents, codec=codec_for(int))
PLAIN = InputSpec(topic=SALES, handler=HandlerSpec(method="process"))
STEPPED = InputSpec(topic=SALES, handler=HandlerSpec(method="process"), key=lambda sale: "k", shuffle=STEPS)


def test_a_replayed_value_has_passed_the_shuffles_steps() -> None:
    assert [*_through_its_shuffle(PLAIN, b'{"cents":5}')] == [b'{"cents":5}']
    assert [*_through_its_shuffle(STEPPED, b'{"cents":5}')] == [b"5"]
    assert [*_through_its_shuffle(STEPPED, b'{"cents":-5}')] == []


def test_a_tombstone_and_a_value_that_fails_are_as_they_are() -> None:
    assert [*_through_its_shuffle(STEPPED, None)] == [None]
    assert [*_through_its_shuffle(STEPPED, b"{")] == [b"{"]


def test_the_replayed_service_reads_the_shuffles_records() -> None:
    read = _behind_its_shuffle(STEPPED)
    assert (read.topic.codec.type, read.key, read.shuffle) == (int, None, None)
    assert _behind_its_shuffle(PLAIN) == PLAIN

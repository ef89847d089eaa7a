"""Lines become records: checked, keyed, placed and stamped as the topic says."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from tidegate import App, Context, EventTime, ValueState
from tidegate.engine.topology.plan import Plan
from tidegate.errors import DataError, DecodeError, RecordTooLargeError
from tidegate.keys import partition_of
from tidegate.logs.records import Record
from tidegate.serving.record_builder import RecordBuilder, needs_key, typed_topic
from tidegate.time.clock import ManualClock
from tidegate_app.actions.tail import record_line

NOW = 1_700_000_000_000


class Like(msgspec.Struct):
    who: str
    at: int = 5
    nickname: str | None = None


app = App("records", partitions=4)
likes = app.topic("likes", value_type=Like, key="who", time=EventTime("at"))
loose = app.topic("loose")
shuffled = app.topic("shuffled", value_type=dict)
table = app.topic("table", value_type=Like, compact=True, key_type=int)
raw = app.topic("raw", value_type=bytes)
optional = app.topic("optional", value_type=Like | None)
timed = app.topic("timed", value_type=Like, key="who", time=EventTime("at"), compact=True)


@app.process(loose)
async def reader(ctx: Context, like: Like, seen: ValueState[int | None]) -> None:
    """Its annotation is all that says what is in the topic."""


@app.process(likes)
async def liked(ctx: Context, like: Like) -> None:
    """Needs a key."""


@app.process(shuffled, key_by="who")
async def shuffling(ctx: Context, event: dict) -> None:  # type: ignore[type-arg]
    """Needs no key: it finds its own."""


def plan() -> Plan:
    definition = app.define()
    return Plan(definition.id, definition.services, definition.topics, definition.resolve().settings, {})


def maker(name: str, **options: Any) -> RecordBuilder:
    topic = typed_topic(plan(), name)
    return RecordBuilder(topic, ManualClock(NOW), keyed=needs_key(plan(), topic), largest=8 << 20, **options)


def test_a_value_is_kept_as_it_was_written_and_keyed_by_its_topic() -> None:
    line = b'{"who": "ann",   "extra": 1}\r\n'

    assert maker("likes").make(line) == (partition_of(b"ann", 4), b"ann", b'{"who": "ann",   "extra": 1}', 5, [])


def test_a_field_can_be_the_key() -> None:
    partition, key, *_ = maker("likes", field="at").make(b'{"who": "ann", "at": 9}')

    assert (partition, key) == (partition_of(b"9", 4), b"9")


def test_without_an_event_time_a_record_is_stamped_now() -> None:
    assert maker("shuffled").make(b'{"who": "ann"}')[3] == NOW


def test_records_that_need_no_key_are_spread() -> None:
    spread = maker("shuffled")

    assert {spread.make(b"{}")[0] for _ in range(8)} == {0, 1, 2, 3}


def test_the_type_may_be_inferred_from_the_reading_handler() -> None:
    with pytest.raises(DecodeError, match="not a valid Like"):
        maker("loose", field="who").make(b"[]")


@pytest.mark.parametrize(
    ("topic", "line", "message"),
    [
        ("likes", b'{"who": "ann"', "not a valid Like: Input data was truncated"),
        ("likes", b'{"who": 7}', r"Expected `str`, got `int` - at `\$.who`"),
        ("likes", b"{}", "missing required field `who`"),
        ("likes", b"\xff", "not a valid Like"),
        ("loose", b'{"who": "ann"}', "the record has no key, and 'loose' needs one. Take it from a field"),
        ("table", b'{"who": "ann"}', "the record has no key"),
    ],
)
def test_an_invalid_line_gives_a_clear_error(topic: str, line: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        maker(topic).make(line)


def test_a_key_that_cannot_be_found_is_the_lines_fault() -> None:
    with pytest.raises(DataError, match="the key function failed: KeyError: 'who'"):
        maker("shuffled", field="who").make(b"{}")


@pytest.mark.parametrize(
    ("line", "options"),
    [(b'{"key": "ann", "value": {"who": "ann"}}', {"envelopes": True}), (b'{"who": "ann"}', {"field": "who"})],
)
def test_so_is_one_that_is_of_another_type_than_the_topics(line: bytes, options: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="the key b'ann' is not of type int"):
        maker("table", **options).make(line)


def test_a_key_of_none_is_no_key() -> None:
    with pytest.raises(DataError, match="the record has no key"):
        maker("likes", field="nickname").make(b'{"who": "ann", "nickname": null}')


def test_a_record_that_the_log_would_refuse_is_refused_here_with_its_line() -> None:
    with pytest.raises(RecordTooLargeError):
        maker("raw").make(b"x" * (9 << 20))


def test_whole_records_bring_their_key_time_and_headers() -> None:
    line = b'{"key": 7, "value": {"who": "ann"}, "timestamp": 3, "headers": {"a": "b", "c": ["d", {"base64": "/w=="}]}}'

    made = maker("table", envelopes=True).make(line)

    assert made == (
        partition_of(b"7", 4), b"7", b'{"who": "ann"}', 3, [("a", b"b"), ("c", b"d"), ("c", b"\xff")],
    )  # fmt: skip


def test_null_removes_a_key_from_a_compacted_topic_only() -> None:
    assert maker("table", envelopes=True).make(b'{"key": 7, "value": null}')[2] is None
    with pytest.raises(DecodeError):
        maker("likes", envelopes=True).make(b'{"key": "x", "value": null}')


def test_null_is_a_tombstone_where_the_type_allows_none() -> None:
    assert maker("optional", envelopes=True).make(b'{"key": "x", "value": null}')[1:3] == (b"x", None)
    assert maker("optional").make(b" null\n")[1:3] == (None, None)
    with pytest.raises(DecodeError, match=r"'likes' takes none.*value_type=X \| None"):
        maker("likes").make(b"null")


def test_null_is_a_word_in_a_topic_of_bytes_that_takes_no_tombstones() -> None:
    assert maker("raw", envelopes=True).make(b'{"value": null}')[2] == b"null"
    assert maker("raw").make(b"null")[2] == b"null"


def test_a_tombstone_has_the_time_that_it_is_given_or_the_clocks() -> None:
    assert maker("timed", envelopes=True).make(b'{"key": "x", "value": null}')[3] == NOW
    assert maker("timed", envelopes=True).make(b'{"key": "x", "value": null, "timestamp": 9}')[3] == 9


@pytest.mark.parametrize(
    "line",
    [
        b'{"key": 1}',
        b'{"value": 1, "valeu": 2}',
        b"[]",
        b'{"value": {"who": "a"}, "headers": {"h": 1}}',
        b'{"value": {"who": "a"}, "key": {"base64": "!"}}',
    ],
)
def test_an_invalid_record_is_refused(line: bytes) -> None:
    with pytest.raises(DecodeError, match="not a record"):
        maker("likes", envelopes=True).make(line)


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [("likes", b"ann", b'{"who":"ann"}'), ("raw", b"k", b"\xff\x00"), ("raw", b"\xfe", b"plain")],
)
def test_the_output_of_tail_can_be_sent_again(topic: str, key: bytes, value: bytes) -> None:
    record = Record(key, value, 3, (("h", b"1"), ("h", b"\xff")), 9)
    line = orjson.dumps(record_line(record, 2))

    assert maker(topic, envelopes=True).make(line)[1:] == (key, value, 3, [("h", b"1"), ("h", b"\xff")])

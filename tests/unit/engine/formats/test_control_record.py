"""Records on the control topic: the key names the owner, and a tombstone removes them."""

from __future__ import annotations

import msgspec

from tidegate.engine.formats.control_record import ControlRecords


class Said(msgspec.Struct):
    what: str


notices = ControlRecords(b"tidegate/said/", Said)


def test_a_record_is_decoded_with_the_name_of_its_owner() -> None:
    key, value, timestamp, headers = notices.record("task.0", Said("hello"), 7)

    assert (key, timestamp, headers) == (b"tidegate/said/task.0", 7, ())
    assert key == notices.key("task.0")
    assert notices.name(key or b"") == "task.0"
    assert notices.decode(value or b"") == Said("hello")


def test_none_takes_it_back() -> None:
    assert notices.record("task.0", None, 7)[:2] == (notices.key("task.0"), None)


def test_keys_of_another_kind_have_no_name() -> None:
    assert [notices.name(key) for key in (b"", b"task.0", b"tidegate/run", b"tidegate/said")] == [None] * 4

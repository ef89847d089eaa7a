from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import DefinitionError
from tidegate.keys import KEY_GROUPS, key_group
from tidegate.state import layout

keys = st.binary(max_size=12) | st.lists(st.sampled_from([b"\x00", b"\x01", b"\xff", b"a"]), max_size=6).map(b"".join)
subkeys = st.binary(max_size=8)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
times = st.integers(-(2**63), 2**63 - 1)
domains = st.sampled_from([layout.EVENT, layout.PROCESSING])


def within(entry: bytes, bounds: tuple[bytes, bytes]) -> bool:
    return bounds[0] <= entry < bounds[1]


@given(names, keys, subkeys)
def test_a_keyed_entry_parses_back(name: str, key: bytes, subkey: bytes) -> None:
    entry = layout.keyed_key(layout.keyed_prefix(name), key) + subkey

    assert layout.parse_keyed(entry) == (name, key_group(key), key, subkey)


@given(keys, names)
def test_a_timer_parses_back(key: bytes, name: str) -> None:
    assert layout.parse_timer(layout.timer_key(key, name)) == (key_group(key), key, name)


@given(domains, times)
def test_the_domain_and_time_of_a_timer_unpack(domain: int, time: int) -> None:
    assert layout.unpack_due(layout.pack_due(domain, time)) == (domain, time)


@given(domains, times, keys, names)
def test_a_queued_timer_parses_back(domain: int, time: int, key: bytes, name: str) -> None:
    assert layout.parse_queue(layout.queue_key(domain, time, key, name)) == (domain, time, key, name)


@given(names, st.integers(0, 2**64 - 1))
def test_an_operator_item_parses_back(name: str, index: int) -> None:
    assert layout.parse_operator(layout.operator_key(name, index)) == (name, index)


@given(st.tuples(keys, subkeys), st.tuples(keys, subkeys))
def test_entries_sort_by_group_then_key_then_subkey(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> None:
    prefix = layout.keyed_prefix("seen")

    def entry(key: bytes, subkey: bytes) -> bytes:
        return layout.keyed_key(prefix, key) + subkey

    assert (entry(*one) < entry(*other)) == ((key_group(one[0]), *one) < (key_group(other[0]), *other))


@given(st.tuples(domains, times, keys, st.just("n")), st.tuples(domains, times, keys, st.just("n")))
def test_the_queue_sorts_by_domain_then_time(
    one: tuple[int, int, bytes, str], other: tuple[int, int, bytes, str]
) -> None:
    assert (layout.queue_key(*one) < layout.queue_key(*other)) == (one < other)


@given(domains, times, domains, st.integers(-(2**65), 2**65), keys)
def test_the_range_of_due_timers_ends_with_the_time_itself(
    domain: int, time: int, of: int, upto: int, key: bytes
) -> None:
    due = within(layout.queue_key(domain, time, key, "n"), layout.queue_range(of, upto))

    assert due == (domain == of and time <= upto)


@given(keys, keys, subkeys)
def test_the_range_of_a_key_holds_its_own_subkeys_only(key: bytes, other: bytes, subkey: bytes) -> None:
    prefix = layout.keyed_prefix("seen")

    assert within(layout.keyed_key(prefix, other) + subkey, layout.key_range(prefix, key)) == (key == other)


@given(keys, subkeys, st.integers(0, KEY_GROUPS - 1), st.integers(0, KEY_GROUPS - 1))
def test_the_range_of_groups_holds_those_groups_only(key: bytes, subkey: bytes, first: int, last: int) -> None:
    prefix = layout.keyed_prefix("seen")
    entry = layout.keyed_key(prefix, key) + subkey

    assert within(entry, layout.group_range(prefix, first, last)) == (first <= key_group(key) <= last)
    assert within(entry, layout.group_range(prefix, first)) == (first == key_group(key))
    assert within(layout.timer_key(key, "n"), layout.timer_group_range(first, last)) == (
        first <= key_group(key) <= last
    )


@given(st.binary(max_size=4), st.binary(max_size=6))
def test_the_range_of_a_prefix_contains_the_keys_with_that_prefix(rest: bytes, entry: bytes) -> None:
    prefix = b"\x02" + rest

    assert within(entry, layout.prefix_range(prefix)) == entry.startswith(prefix)
    assert within(prefix + entry, layout.prefix_range(prefix))


@given(names, names, keys)
def test_states_do_not_share_a_prefix(name: str, other: str, key: bytes) -> None:
    entry = layout.keyed_key(layout.keyed_prefix(name), key)

    assert entry.startswith(layout.keyed_prefix(other)) == (name == other)


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128])
def test_a_name_that_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="1 to 255 bytes"):
        layout.keyed_prefix(name)


def test_the_tags_leave_zero_to_the_stores() -> None:
    tags = (layout.MARKER, layout.KEYED, layout.TIMER, layout.QUEUE, layout.OPERATOR, layout.SCHEMA)

    assert tags == tuple(bytes((tag,)) for tag in range(1, 7))

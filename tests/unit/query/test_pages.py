"""Pages of entries come in the order of keys, whatever store and key group they lie in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.keys import KEY_GROUPS, key_group
from tidegate.query.pages import Span, take_page
from tidegate.state.base import StorePosition
from tidegate.state.layout import escape_key, keyed_key, keyed_prefix, parse_tail
from tidegate.state.memory import MemoryStore

STEM = keyed_prefix("seen")
AT = StorePosition("lineage", 1, 1)


def stores_of(keys: Iterable[bytes], count: int) -> list[MemoryStore]:
    """Each key in one of the stores, with itself as the value."""
    stores = [MemoryStore() for _ in range(count)]
    for key in keys:
        stores[key_group(key) % count].apply([(keyed_key(STEM, key), key)], AT)
    return stores


def spans(stores: Iterable[MemoryStore], prefix: bytes = b"") -> list[Span]:
    begin = escape_key(prefix)
    return [Span(store, STEM + bytes((group,)), begin) for store in stores for group in range(KEY_GROUPS)]


async def all_pages(found: list[Span], limit: int) -> list[bytes]:
    keys: list[bytes] = []
    after: bytes | None = b""
    while after is not None:
        taken, after = await take_page(found, after=after, limit=limit)
        assert len(taken) <= limit
        keys += [parse_tail(place)[0] for place, _ in taken]
        assert [value for _, value in taken] == keys[len(keys) - len(taken) :]
    return keys


@settings(max_examples=50, deadline=None)
@given(
    keys=st.sets(st.binary(max_size=6), max_size=60),
    limit=st.integers(1, 20),
    count=st.integers(1, 4),
    prefix=st.binary(max_size=2),
)
def test_pages_together_are_all_keys_with_the_prefix_in_order(
    keys: set[bytes], limit: int, count: int, prefix: bytes
) -> None:
    found = asyncio.run(all_pages(spans(stores_of(keys, count), prefix), limit))

    assert found == sorted(key for key in keys if key.startswith(prefix))


async def test_keys_with_zero_bytes_keep_their_order() -> None:
    keys = {b"a", b"a\x00", b"a\x00\x00", b"a\x00b", b"a\x01", b"b"}

    found = await all_pages(spans(stores_of(keys, 2)), 2)

    assert found == sorted(keys)
    assert all(first < second for first, second in pairwise(found))


async def test_a_page_stops_at_its_bytes_but_holds_at_least_one_entry() -> None:
    store = MemoryStore()
    store.apply([(keyed_key(STEM, b"%d" % number), b"x" * 1000) for number in range(5)], AT)

    taken, after = await take_page(spans([store]), limit=100, max_bytes=2500)
    alone, _ = await take_page(spans([store]), limit=100, max_bytes=10)

    assert (len(taken), len(alone)) == (2, 1)
    assert after is not None


async def test_a_long_page_lets_the_event_loop_turn() -> None:
    store = MemoryStore()
    store.apply([(keyed_key(STEM, b"%d" % number), b"x") for number in range(20_000)], AT)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    await take_page(spans([store]), limit=20_000)
    counting.cancel()

    assert turns > 3

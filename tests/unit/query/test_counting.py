from __future__ import annotations

from tidegate.query.counting import LOOKED_AT, KeyCount, count_keys
from tidegate.state.base import StorePosition
from tidegate.state.layout import EVENT, MARKER, keyed_key, keyed_prefix, pack_due, queue_key, timer_key
from tidegate.state.memory import MemoryStore

AT = StorePosition("lineage", 1, 1)


def store_with(keys: int, entries_each: int = 1) -> MemoryStore:
    store = MemoryStore()
    prefix = keyed_prefix("m")
    names = [b"%d" % number for number in range(keys)]
    changes = [(keyed_key(prefix, name) + b"%d" % sub, b"1") for name in names for sub in range(entries_each)]
    store.apply(changes, AT)
    return store


async def test_a_key_counts_once_however_many_states_and_timers_it_has() -> None:
    store = store_with(3, entries_each=4)
    store.apply([(MARKER, b"{}"), (keyed_key(keyed_prefix("n"), b"0"), b"1")], AT)
    store.apply([(timer_key(b"9", "t"), pack_due(EVENT, 1)), (queue_key(EVENT, 1, b"9", "t"), b"")], AT)

    assert await count_keys([store]) == KeyCount(4, exact=True)


async def test_keys_of_all_stores_are_added_up() -> None:
    assert await count_keys([store_with(3), store_with(4), MemoryStore()]) == KeyCount(7, exact=True)


async def test_many_keys_are_estimated() -> None:
    count = await count_keys([store_with(LOOKED_AT + 5000, entries_each=2)])

    assert not count.exact
    assert abs(count.keys - (LOOKED_AT + 5000)) < 2500


def test_it_reads_well() -> None:
    assert str(KeyCount(1, exact=True)) == "1 key"
    assert str(KeyCount(12_345, exact=True)) == "12,345 keys"
    assert str(KeyCount(1_000_000, exact=False)) == "about 1,000,000 keys"

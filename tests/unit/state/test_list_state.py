"""ListState: a list per key, whose items are stored one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support import Bench
from tidegate import SKIP, Context, ListState
from tidegate.errors import EncodeError


async def operate(ctx: Context, event: Any, kept: ListState[int]) -> None:
    result: Any = None
    for operation, *arguments in event:
        match operation:
            case "wait":
                await asyncio.sleep(0)
            case "fail":
                raise ValueError("on purpose")
            case "list":
                result = list(kept)
            case "len":
                result = [len(kept), bool(kept)]
            case "at":
                result = kept[arguments[0]]
            case _:
                result = getattr(kept, operation)(*arguments)
    ctx.emit(result)


def test_items_keep_their_order() -> None:
    with Bench(operate) as bench:
        bench.put("k", [["append", 3], ["extend", [1, 2]]])
        bench.restart()
        bench.put("k", [["append", 0], ["list"]])
        bench.put("k", [["at", 0]])
        bench.put("k", [["at", -1]])
        bench.put("k", [["len"]])
        assert bench.outputs(bench.out) == [None, [3, 1, 2, 0], 3, 0, [4, True]]
        assert bench.value("kept", "k") == [3, 1, 2, 0]


def test_the_first_item_can_be_removed() -> None:
    with Bench(operate) as bench:
        bench.put("k", [["extend", [1, 2, 3]]])
        bench.put("k", [["popleft"]])
        bench.restart()
        bench.put("k", [["popleft"]])
        bench.put("k", [["append", 4], ["wait"], ["popleft"]])
        bench.put("k", [["list"]])
        assert bench.outputs(bench.out) == [None, 1, 2, 3, [4]]


def test_taking_from_an_empty_list_is_an_index_error() -> None:
    with Bench(operate, service={"errors": SKIP}) as bench:
        bench.put("k", [["append", 1], ["popleft"], ["popleft"]])
        bench.put("k", [["at", 0]])
        assert bench.outputs(bench.out) == []
        assert bench.value("kept", "k") == []


@pytest.mark.parametrize("wait", [[], [["wait"]]], ids=["direct", "suspended"])
def test_replacing_makes_it_the_whole_list(wait: Any) -> None:
    with Bench(operate) as bench:
        bench.put("k", [["extend", [1, 2, 3]]])
        bench.put("k", [["replace", [7, 8]], *wait, ["list"]])
        bench.put("k", [*wait, ["append", 9], ["list"]])
        assert bench.outputs(bench.out)[1:] == [[7, 8], [7, 8, 9]]
        bench.crash()
        assert bench.value("kept", "k") == [7, 8, 9]


def test_clearing_removes_all_entries() -> None:
    with Bench(operate) as bench:
        bench.put("k", [["extend", [1, 2, 3]], ["popleft"]])
        bench.put("k", [["clear"], ["len"]])
        assert bench.outputs(bench.out)[-1] == [0, False]
        latest = {change.key: change.value for change in bench.changes()}
        assert set(latest.values()) == {None}


def test_appending_writes_the_item_only() -> None:
    with Bench(operate) as bench:
        bench.put("k", [["extend", list(range(1000))]])
        bench.changes()
        bench.put("k", [["append", 7]])
        assert len(bench.changes()) == 2  # the item, and where the list ends


def test_a_handler_that_fails_has_not_appended() -> None:
    with Bench(operate, service={"errors": SKIP}) as bench:
        bench.put("k", [["append", 1]])
        bench.put("k", [["append", 2], ["popleft"], ["fail"]])
        bench.put("k", [["append", 3], ["wait"], ["popleft"], ["fail"]])
        bench.put("k", [["append", 4], ["list"]])
        assert bench.outputs(bench.out)[-1] == [1, 4]


def test_an_item_of_another_type_is_refused() -> None:
    async def handle(ctx: Context, event: Any, kept: ListState[int]) -> None:
        with pytest.raises(EncodeError, match="'kept'"):
            kept.append(event)
        ctx.emit(list(kept))

    with Bench(handle) as bench:
        bench.put("k", "text")
        bench.put("k", None)
        assert bench.outputs(bench.out) == [[], []]


def test_a_list_can_be_extended_by_itself() -> None:
    async def handle(ctx: Context, event: Any, kept: ListState[int]) -> None:
        kept.extend(event)
        kept.extend(kept)
        ctx.emit(list(kept))

    with Bench(handle) as bench:
        bench.put("k", [1, 2])
        assert bench.outputs(bench.out) == [[1, 2, 1, 2]]

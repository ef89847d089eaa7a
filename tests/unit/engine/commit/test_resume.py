"""The resume point of a task whose input topic has changed."""

from __future__ import annotations

import pytest

from tests.support import Bench
from tidegate import Context, ValueState
from tidegate.errors import LogError


async def count(ctx: Context, event: int, seen: ValueState[int | None]) -> None:
    seen.value = (seen.value or 0) + 1


def test_a_recreated_input_is_refused() -> None:
    with Bench(count) as bench:
        bench.put("a")
        bench.put("a")
        spec = bench.run(bench.log.topics())["events"]
        bench.run(bench.log.delete(["events"]))
        bench.run(bench.log.create([spec]))

        with pytest.raises(LogError, match=r"has read events\[0\] up to \d+, but it ends at 0.*tidegate reset"):
            bench.restart()

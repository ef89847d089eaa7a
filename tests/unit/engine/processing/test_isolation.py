"""A log refuses a record of a transaction: the failed work item is found, and only that is given up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support import Bench
from tidegate import DEAD_LETTER, SKIP, Context, ErrorPolicy, Timer, ValueState, retry
from tidegate.errors import RecordRefusedError, ServiceFailedError
from tidegate.testing.memory_log import MemoryWriter

BAD = b"bad"


@contextmanager
def picky_log(monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...] = ("out",)) -> Iterator[list[int]]:
    """Every transaction with a bad record in one of these topics is refused. Yields how many were."""
    append = MemoryWriter.append
    refused: list[int] = []

    async def pick(self: MemoryWriter, records: Any, then: Any = None) -> Any:
        bad = [at for at, new in records.items() if at.topic in topics and any(BAD in (r[1] or b"") for r in new)]
        if bad:
            refused.append(sum(map(len, records.values())))
            raise RecordRefusedError(bad[0].topic, "it is bad")
        return await append(self, records, then)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryWriter, "append", pick)
        yield refused


async def echo(ctx: Context, event: str, seen: ValueState[list[str] | None]) -> None:
    seen.value = [*(seen.value or []), event]
    ctx.emit(event)


def bench_of(errors: ErrorPolicy, **options: Any) -> Bench:
    return Bench(echo, service={"errors": errors}, **options)


EVENTS = [("a", "1"), ("b", "2"), ("a", "bad 3"), ("b", "4"), ("a", "5"), ("c", "bad 6"), ("a", "7")]
GOOD = {"a": ["1", "5", "7"], "b": ["2", "4"]}


def results(bench: Bench) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in bench.records(bench.out):
        found.setdefault(record.key, []).append(record.value)
    return found


def test_only_the_records_at_fault_are_dead_lettered(monkeypatch: pytest.MonkeyPatch) -> None:
    with bench_of(DEAD_LETTER) as bench, picky_log(monkeypatch) as refused:
        bench.put_all(EVENTS)

        assert max(refused) > 2, "the first commit that was refused had many records in it"
        assert results(bench) == GOOD
        assert {key: bench.value("seen", key) for key in "abc"} == {**GOOD, "c": None}
        letters = bench.records("bench.service.dead-letters")
        assert [letter.value for letter in letters] == [b'"bad 3"', b'"bad 6"']
        assert dict(letters[0].headers)["error-type"] == b"RecordRefusedError"


@pytest.mark.parametrize("policy", [SKIP, retry(3, then=SKIP)])
def test_or_they_are_skipped_and_not_retried(monkeypatch: pytest.MonkeyPatch, policy: ErrorPolicy) -> None:
    with bench_of(policy) as bench, picky_log(monkeypatch):
        bench.put_all(EVENTS)

        assert results(bench) == GOOD


def test_or_the_worker_stops_and_names_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(echo)
    with pytest.raises(ServiceFailedError, match=r"events\[0\] offset 2, key b'a'"), bench, picky_log(monkeypatch):
        bench.put_all(EVENTS)


def test_afterwards_many_records_go_into_one_commit_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with bench_of(SKIP) as bench, picky_log(monkeypatch):
        bench.put_all(EVENTS)
        before = len(bench.changelog)
        bench.put_all([(f"key {number}", "good") for number in range(50)])

        assert len(bench.changelog) - before <= 52
        assert bench.engine.tasks["service.0"]._isolation_steps is None


def test_a_timer_can_be_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(ctx: Context, event: str) -> None:
        ctx.timers.at(1000, name=event)

    async def fire(ctx: Context, timer: Timer) -> None:
        ctx.emit(timer.name)

    bench = Bench(late, timers={None: fire}, service={"errors": DEAD_LETTER})
    with bench, picky_log(monkeypatch):
        bench.put_all([("a", "one"), ("a", "bad"), ("b", "two")], timestamp=0)
        bench.put("z", "three", timestamp=100_000)

        assert results(bench) == {"a": ["one"], "b": ["two"], "z": ["three"]}
        (letter,) = bench.records("bench.service.dead-letters")
        assert dict(letter.headers)["timer"] == b"bad"
        assert bench.timers(bench.service, "a") == []


def test_a_refused_dead_letter_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(DEAD_LETTER)
    topics = ("out", "bench.service.dead-letters")
    with pytest.raises(RecordRefusedError), bench, picky_log(monkeypatch, topics):
        bench.put_all(EVENTS)


def test_it_survives_a_crash_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    with bench_of(SKIP) as bench, picky_log(monkeypatch):
        bench.put_all(EVENTS, settle=False)
        bench.run(bench.engine.read_once())
        bench.run(bench.engine.work_once())
        bench.crash()

        assert results(bench) == GOOD

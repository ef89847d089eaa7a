"""Undecodable records and failing handlers follow the error policy, and affect no other records."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import msgspec
import pytest

from tests.support import Bench, bounded_run
from tidegate import (
    DEAD_LETTER,
    MAX_TIME,
    SKIP,
    STOP,
    App,
    Context,
    Default,
    ErrorPolicy,
    Monotonic,
    Timer,
    ValueState,
    retry,
)
from tidegate.errors import DefinitionError, ServiceFailedError, UsageError
from tidegate.functions.context import Origin
from tidegate.testing import AppHarness


class Order(msgspec.Struct, frozen=True):
    id: int
    amount: float = 0.0


calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


async def handle(ctx: Context, event: Any, total: Annotated[ValueState[int], Default(0)]) -> None:
    """Adds up numbers. Text fails; if it begins with a w, after a suspension. A dict fails so many times."""
    calls.append(event)
    total.value += 1
    ctx.emit([ctx.key, event])
    ctx.timers.after(60, name="later")
    if isinstance(event, str):
        if event.startswith("w"):
            await asyncio.sleep(0)
            total.value += 1
            ctx.emit("again")
        raise ValueError(event)
    if isinstance(event, dict) and calls.count(event) <= event["fail"]:
        if event.get("wait"):
            await asyncio.sleep(0)
        raise ValueError(f"attempt {calls.count(event)}")


async def later(ctx: Context, timer: Timer, total: Annotated[ValueState[int], Default(0)]) -> None:
    total.value += 100


def bench(errors: ErrorPolicy = STOP, **options: Any) -> Bench:
    return Bench(handle, timers={"later": later}, service={"errors": errors}, **options)


ways = pytest.mark.parametrize("text", ["direct", "waits"])


# -- stop --------------------------------------------------------------------------------------------------------------


@ways
def test_stop_names_the_record_and_commits_none_of_its_effects(text: str) -> None:
    with bench() as b:
        b.put("a", 1)
        with pytest.raises(ServiceFailedError, match=r"events\[0\] offset 2, key b'k': ValueError: " + text):
            b.put("k", text)
        assert b.outputs(b.out) == [["a", 1]]
        assert b.value("total", "k") is None
        assert b.timers(b.service, "k") == []


@ways
def test_a_record_that_stopped_a_service_is_read_again_after_a_restart(text: str) -> None:
    with bench() as b:
        with pytest.raises(ServiceFailedError):
            b.put("k", text)
        for _ in range(2):
            with pytest.raises(ServiceFailedError, match=text):
                b.restart()
        assert calls == [text] * 3


def test_records_before_the_record_that_stopped_a_service_are_committed() -> None:
    with bench() as b:
        b.put("a", 1, settle=False)
        b.put("b", {"fail": 2}, settle=False)
        b.put("c", 2, settle=False)
        with pytest.raises(ServiceFailedError):
            b.settle()
        with pytest.raises(ServiceFailedError):
            b.restart()
        b.restart()
        assert b.outputs(b.out) == [["a", 1], ["b", {"fail": 2}], ["c", 2]]
        assert [b.value("total", key) for key in "abc"] == [1, 1, 1]


# -- skip --------------------------------------------------------------------------------------------------------------


@ways
def test_skip_rolls_back_all_effects_of_the_record(text: str) -> None:
    with bench(SKIP) as b:
        b.put("k", 1)
        before = (b.value("total", "k"), b.timers(b.service, "k"))
        b.advance(seconds=1)
        b.put("k", text)
        assert (b.value("total", "k"), b.timers(b.service, "k")) == before
        b.put("k", 2)
        assert b.outputs(b.out) == [["k", 1], ["k", 2]]
        b.restart()
        assert calls == [1, text, 2]


def test_a_bad_record_does_not_discard_the_outputs_of_others() -> None:
    with bench(SKIP) as b:
        for number in range(3):
            b.put("k", number, settle=False)
            b.send_raw(b.events, key=b"k", value=b"{", settle=False)
        b.settle()
        assert b.outputs(b.out) == [["k", 0], ["k", 1], ["k", 2]]
        assert b.value("total", "k") == 3


# -- dead letters ------------------------------------------------------------------------------------------------------


@ways
def test_a_dead_letter_contains_the_original_bytes_the_error_and_the_origin(text: str) -> None:
    with bench(DEAD_LETTER) as b:
        b.put("a", 1)
        b.put("k", text, timestamp=5000, headers=[("trace", b"7")])
        (letter,) = b.dead_letters(b.service)
        assert (letter.key, letter.value) == (b"k", b'"%s"' % text.encode())
        assert (letter.error_type, letter.error, letter.attempts) == ("ValueError", text, 1)
        assert "raise ValueError(event)" in letter.traceback
        assert letter.origin == Origin("events", 0, 2)
        assert letter.timestamp == 5000
        assert letter.headers == (("trace", b"7"),)
        assert letter.timer is None
        assert b.outputs(b.out) == [["a", 1]]


def test_a_dead_letter_is_committed_with_its_records_position() -> None:
    with bench(DEAD_LETTER) as b:
        b.put("k", "direct", settle=False)
        b.settle(commit=False)
        assert b.dead_letters(b.service) == []
        b.crash()
        assert len(b.dead_letters(b.service)) == 1
        b.crash()
        assert len(b.dead_letters(b.service)) == 1
        assert calls == ["direct", "direct"]


@pytest.mark.parametrize("value", [b"junk", b"a:b:c", b"\xff:1:2"])
def test_a_user_header_that_resembles_an_internal_one_is_harmless(value: bytes) -> None:
    with Bench(handle, service={"errors": DEAD_LETTER}) as bench:
        bench.send_raw("events", key=b"a", value=b'"text"', headers=[("tidegate-origin", value)])

        (letter,) = bench.records("bench.service.dead-letters")
        headers = dict(letter.headers)
        assert (headers["origin-topic"], headers["origin-offset"]) == (b"events", b"0")


async def keep(ctx: Context, event: int, kept: ValueState[int | None]) -> None:
    kept.value = event + 0  # text fails


@pytest.mark.parametrize("options", [{}, {"key_by": lambda _: "a"}])
def test_neither_is_a_header_without_a_value_which_kafka_has(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bench(keep, service={"errors": DEAD_LETTER, **options}) as bench:
        with monkeypatch.context() as lenient:
            lenient.setattr("tidegate.testing.memory_log.check_size", lambda *_: None)
            headers: Any = [("trace", None), ("tidegate-origin", None)]
            bench.send_raw("events", key=b"a", value=b"1", headers=headers, settle=False)
            bench.send_raw("events", key=b"a", value=b'"text"', headers=headers, settle=False)
        bench.settle()

        assert bench.value("kept", "a") == 1
        (letter,) = bench.records("bench.service.dead-letters")
        assert letter.value == b'"text"'
        assert dict(letter.headers)["trace"] == b""


def test_several_bad_records_in_a_row_all_become_dead_letters() -> None:
    with bench(DEAD_LETTER) as b:
        for number in range(3):
            b.send_raw(b.events, key=b"k", value=b"{%d" % number, settle=False)
            b.put("k", "direct", settle=False)
        b.put("k", 1, settle=False)
        b.settle()
        letters = b.dead_letters(b.service)
        assert [letter.value for letter in letters] == [b"{0", b'"direct"', b"{1", b'"direct"', b"{2", b'"direct"']
        assert b.outputs(b.out) == [["k", 1]]


# -- records that no handler sees --------------------------------------------------------------------------------------


async def take(ctx: Context, event: Order, total: Annotated[ValueState[float], Default(0.0)]) -> None:
    total.value += event.amount


BAD = {
    "no JSON": ({"key": b"k", "value": b"{"}, "DecodeError", "Order"),
    "not UTF-8": ({"key": b"k", "value": b"\xff\xfe"}, "DecodeError", "Order"),
    "another type": ({"key": b"k", "value": b'{"id":"x"}'}, "DecodeError", r"int"),
    "a missing field": ({"key": b"k", "value": b"{}"}, "DecodeError", "id"),
    "a tombstone": ({"key": b"k", "value": None}, "DecodeError", "tombstone"),
    "no key": ({"key": None, "value": b'{"id":1}'}, "MissingKeyError", "key_by"),
}


@pytest.mark.parametrize(("record", "kind", "message"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("policy", [DEAD_LETTER, retry(3, then=DEAD_LETTER)], ids=["dead letter", "retry"])
def test_an_undecodable_record_follows_the_error_policy_without_retries(
    record: dict[str, Any], kind: str, message: str, policy: ErrorPolicy
) -> None:
    with Bench(take, service={"errors": policy}) as b:
        b.send_raw(b.events, **record, settle=False)
        b.send_raw(b.events, key=b"k", value=b'{"id":1,"amount":2.5}')
        (letter,) = b.dead_letters(b.service)
        assert (letter.error_type, letter.attempts) == (kind, 1)
        assert message in letter.error
        assert (letter.key, letter.value) == (record["key"], record["value"])
        assert b.value("total", "k") == 2.5


def test_a_record_in_the_wrong_partition_is_refused_with_advice() -> None:
    with Bench(take, service={"errors": DEAD_LETTER}, partitions=2) as b:
        right = b.app.define().topics[0]
        assert right.name == "events"
        for partition in (0, 1):
            b.send_raw(b.events, key=b"k", value=b'{"id":1,"amount":1}', partition=partition)
        (letter,) = b.dead_letters(b.service)
        assert letter.error_type == "MisplacedKeyError"
        assert "key_by" in letter.error
        assert b.value("total", "k") == 1


def test_a_key_of_another_type_than_declared_is_the_records_fault() -> None:
    async def by_number(ctx: Context, event: Any) -> None:
        ctx.emit(ctx.key + 1)

    with Bench(by_number, service={"errors": DEAD_LETTER, "key_type": int}) as b:
        b.send_raw(b.events, key=b"x", value=b"1")
        b.send_raw(b.events, key=b"41", value=b"1")
        assert [letter.error_type for letter in b.dead_letters(b.service)] == ["DecodeError"]
        assert b.outputs(b.out) == [42]


# -- retry -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [False, True], ids=["direct", "suspended"])
def test_a_handler_is_retried_with_growing_delays(wait: bool) -> None:
    event = {"fail": 3, "wait": wait}
    with bench(retry(5, 1.0, factor=3)) as b:
        b.put("k", event)
        assert len(calls) == 1
        for seconds, attempts in ((0.9, 1), (0.1, 2), (2.9, 2), (0.1, 3), (8.9, 3), (0.1, 4), (1000, 4)):
            b.advance(seconds=seconds)
            assert len(calls) == attempts
        assert b.outputs(b.out) == [["k", event]]
        assert b.value("total", "k") == 1


def test_the_delay_does_not_grow_beyond_its_limit() -> None:
    with bench(retry(2000, 1.0, factor=10.0, most=5.0, then=SKIP)) as b:
        b.put("k", {"fail": 10_000})
        b.advance(seconds=1 + 5 * 1999)
        assert len(calls) == 2001
        b.advance(seconds=100)
        assert len(calls) == 2001


def test_other_keys_continue_while_one_waits_for_its_retry() -> None:
    with bench(retry(5, 10.0)) as b:
        b.put("k", {"fail": 1})
        b.put("k", 1)
        b.put("other", 2)
        assert b.outputs(b.out) == [["other", 2]]
        assert b.value("total", "other") == 1
        b.advance(seconds=10)
        assert b.outputs(b.out) == [["k", {"fail": 1}], ["k", 1]]


def test_a_record_that_waits_for_its_retry_is_handled_after_a_crash_and_others_are_not() -> None:
    with bench(retry(5, 10.0)) as b:
        b.put("k", {"fail": 1})
        b.put("other", 2)
        calls.clear()
        b.crash()
        assert calls == [{"fail": 1}]
        b.advance(seconds=10)
        assert calls == [{"fail": 1}] * 2
        assert b.outputs(b.out) == [["other", 2], ["k", {"fail": 1}]]


@pytest.mark.parametrize(("then", "letters"), [(SKIP, None), (DEAD_LETTER, 1)])
def test_after_the_last_retry_then_decides(then: ErrorPolicy, letters: int | None) -> None:
    with bench(retry(2, 1.0, then=then)) as b:
        b.put("k", "direct")
        b.put("k", 1)
        b.advance(seconds=100)
        assert calls == ["direct", "direct", "direct", 1]
        assert b.outputs(b.out) == [["k", 1]]
        if letters is not None:
            (letter,) = b.dead_letters(b.service)
            assert letter.attempts == 3


def test_after_the_last_retry_the_service_stops_by_default() -> None:
    with bench(retry(1, 1.0)) as b:
        b.put("k", "direct")
        with pytest.raises(ServiceFailedError, match="direct"):
            b.advance(seconds=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": 0},
        {"times": 1, "factor": 0.5},
        {"times": 1, "backoff": -1},
        {"times": 1, "most": -1},
        {"times": 1, "then": retry(1)},
        {"times": 1, "then": "skip"},
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        retry(**wrong)


# -- timers ------------------------------------------------------------------------------------------------------------


async def set_timer(ctx: Context, event: Any, kept: ValueState[int | None]) -> None:
    kept.value = 1
    ctx.timers.after(10, name="t", time="processing")


async def failing_timer(ctx: Context, timer: Timer, kept: ValueState[int | None]) -> None:
    calls.append(timer.name)
    kept.value = 2
    ctx.timers.after(10, name="t", time="processing")
    ctx.emit("never")
    if len(calls) < 100:
        await asyncio.sleep(0)
        raise ValueError("in the timer")


def test_a_timer_whose_handler_fails_finally_has_fired() -> None:
    with Bench(set_timer, timers={"t": failing_timer}, service={"errors": DEAD_LETTER}) as b:
        b.put("k")
        b.advance(seconds=100)
        assert calls == ["t"]
        (letter,) = b.dead_letters(b.service)
        assert (letter.key, letter.value, letter.timer, letter.origin) == (b"k", None, "t", None)
        assert letter.error == "in the timer"
        assert b.value("kept", "k") == 1
        assert b.timers(b.service, "k") == []
        assert b.outputs(b.out) == []


def test_a_failed_timer_handler_is_retried() -> None:
    with Bench(set_timer, timers={"t": failing_timer}, service={"errors": retry(3, 1.0, then=SKIP)}) as b:
        b.put("k")
        b.advance(seconds=10)
        b.crash()
        assert calls == ["t", "t"]
        b.advance(seconds=100)
        assert calls == ["t"] * 5
        assert b.timers(b.service, "k") == []
        assert b.value("kept", "k") == 1


def test_a_timer_whose_handler_stops_the_service_fires_again_at_the_next_start() -> None:
    with Bench(set_timer, timers={"t": failing_timer}) as b:
        b.put("k")
        with pytest.raises(ServiceFailedError, match="timer 't' of key b'k'"):
            b.advance(seconds=10)
        with pytest.raises(ServiceFailedError, match="timer 't' of key b'k'"):
            b.restart()


def test_a_timer_without_a_handler_follows_the_error_policy() -> None:
    with Bench(set_timer, timers={"t": failing_timer}, service={"errors": DEAD_LETTER}) as b:
        b.put("k")
        b.upgrade(Bench(set_timer, service={"errors": DEAD_LETTER}).app)
        b.advance(seconds=10)
        (letter,) = b.dead_letters(b.service)
        assert (letter.timer, letter.error_type) == ("t", "UnknownTimerError")


# -- time outs ---------------------------------------------------------------------------------------------------------


async def hang(ctx: Context, event: Any, kept: ValueState[str | None]) -> None:
    calls.append(event)
    kept.value = "begun"
    if event == "hang":
        await asyncio.sleep(3600)
    elif event == "stubborn":
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            raise RuntimeError("while giving up") from None
    elif event == "swallow":
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            kept.value = "finished anyway"


@pytest.mark.parametrize("event", ["hang", "stubborn"])
def test_a_hanging_handler_times_out_and_its_key_continues(event: str) -> None:
    with Bench(hang, service={"errors": DEAD_LETTER, "timeout": 0.05}) as b:
        b.put("k", event, settle=False)
        b.put("k", "next", settle=False)
        b.put("other", "other")
        assert calls == [event, "other", "next"]
        (letter,) = b.dead_letters(b.service)
        assert letter.error_type == "HandlerTimeoutError"
        assert "0.05 s" in letter.error
        assert b.value("kept", "k") == "begun"


def test_a_handler_that_finishes_despite_its_cancellation_has_finished() -> None:
    with Bench(hang, service={"errors": DEAD_LETTER, "timeout": 0.05}) as b:
        b.put("k", "swallow")
        assert b.dead_letters(b.service) == []
        assert b.value("kept", "k") == "finished anyway"


def test_a_timeout_can_be_retried() -> None:
    with Bench(hang, service={"errors": retry(1, 1.0, then=SKIP), "timeout": 0.05}) as b:
        b.put("k", "hang")
        b.advance(seconds=1)
        assert calls == ["hang", "hang"]
        b.put("k", "next")
        assert calls[-1] == "next"


# -- misuse ------------------------------------------------------------------------------------------------------------


def test_there_are_dead_letters_only_with_that_policy() -> None:
    with bench(SKIP) as b, pytest.raises(UsageError, match="dead letters"):
        b.dead_letters(b.service)


def test_dead_letters_of_rekeyed_services_have_one_topic_whatever_the_partitions() -> None:
    app = App("app")
    left = app.topic("left", partitions=2)
    right = app.topic("right", partitions=5)

    @app.process(left, right, key_by=lambda event: event["id"], errors=DEAD_LETTER)
    async def joined(ctx: Context, event: Any) -> None:
        if event.get("bad"):
            raise ValueError("bad")

    with AppHarness(app) as harness:
        for number in range(20):
            harness.send(left, {"id": f"{number}", "bad": True}, key=f"x{number}")
            harness.send(right, {"nothing": number}, key=f"x{number}")
        letters = harness.dead_letters(joined)
        assert len(letters) == 40
        assert {letter.origin.topic for letter in letters if letter.origin} == {"left", "right"}
        assert {letter.value for letter in letters} >= {b'{"nothing":%d}' % number for number in range(20)}


def test_an_oversized_state_is_attributed_to_its_last_record() -> None:
    app = App("large", partitions=1)
    parts = app.topic("parts", value_type=int)

    @app.process(parts, errors=SKIP)
    async def collect(
        ctx: Context, size: int, text: ValueState[str | None], items: ValueState[list[str] | None]
    ) -> None:
        text.value = "x" * size
        items.value = [*(items.value or ()), "y" * size]

    with AppHarness(app) as harness:
        harness.send(parts, 10, key="a")
        harness.send(parts, 9 << 20, key="a")
        harness.send(parts, 20, key="b")

        assert harness.state(collect, "text", "a") == "x" * 10
        assert harness.state(collect, "items", "a") == ["y" * 10]
        assert harness.state(collect, "text", "b") == "x" * 20


# -- what can be seen only when a commit is made -----------------------------------------------------------------------


class Reading(msgspec.Struct, frozen=True):
    """Cannot change in place, so it is encoded once per commit."""

    level: float
    text: str = ""


async def measure(
    ctx: Context, event: Any, last: ValueState[Reading | None], count: Annotated[ValueState[int], Default(0)]
) -> None:
    calls.append((ctx.key, event))
    count.value += 1
    if event == "wait":
        await asyncio.sleep(0)
    if event in ("nan", "wait"):
        last.value = Reading(float("nan"))
    elif event == "large":
        last.value = Reading(0.0, "x" * (9 << 20))
    else:
        last.value = Reading(event)
    ctx.emit(event)


@pytest.mark.parametrize("bad", ["nan", "wait", "large"])
def test_an_oversized_value_is_attributed_to_its_record(bad: str) -> None:
    with Bench(measure, service={"errors": DEAD_LETTER}) as b:
        for key, event in (("a", 1.0), ("b", bad), ("b", 2.0), ("c", bad), ("d", 3.0)):
            b.put(key, event, settle=False)
        b.settle()
        assert [letter.key for letter in b.dead_letters(b.service)] == [b"b", b"c"]
        assert sorted(b.outputs(b.out)) == [1.0, 2.0, 3.0]
        assert [b.value("count", key) for key in "abcd"] == [1, 1, None, 1]
        assert b.value("last", "b") == Reading(2.0)
        b.put("e", bad)
        assert len(b.dead_letters(b.service)) == 3
        b.crash()
        assert len(b.dead_letters(b.service)) == 3


def test_an_oversized_record_stops_the_service_by_name_after_committing_earlier_records() -> None:
    with Bench(measure) as b:
        b.put("a", 1.0, settle=False)
        b.put("b", "nan", settle=False)
        for attempt in (b.settle, b.restart):
            with pytest.raises(ServiceFailedError, match=r"events\[0\] offset 2, key b'b'.*nan"):
                attempt()


def test_an_oversized_record_affects_neither_other_tasks_nor_the_watermark() -> None:
    options = {"errors": SKIP}
    with Bench(measure, service=options, partitions=3, topic={"watermark": Monotonic()}) as b:
        for number in range(30):
            b.put(str(number), "nan" if number % 7 == 3 else float(number), timestamp=number * 1000, settle=False)
        b.settle()
        assert sorted(b.outputs(b.out)) == [float(number) for number in range(30) if number % 7 != 3]
        b.finish()
        assert b.watermark(b.service) == MAX_TIME


def test_oversized_records_are_found_while_reading_continues() -> None:
    with Bench(measure, service={"errors": DEAD_LETTER}, partitions=2, commit_changes=50) as b:
        b.put_all([(str(number), "nan" if number % 100 == 50 else 0.0) for number in range(5000)], settle=False)
        bounded_run(b)
        assert len(b.dead_letters(b.service)) == 50
        assert len(b.outputs(b.out)) == 4950


@pytest.mark.parametrize("way", ["straight", "awaits", "waits", "timer"])
def test_a_handler_that_calls_sys_exit_fails_and_the_worker_continues(way: str) -> None:
    app = App("leaving", partitions=1)
    events = app.topic("events", value_type=str, key=lambda _: "k")

    async def nothing() -> None:
        pass

    def leave() -> None:
        sys.exit("no such thing")

    if way == "straight":

        @app.process(events, errors=DEAD_LETTER)
        async def count(ctx: Context, event: str, seen: Annotated[ValueState[int], Default(0)]) -> None:
            seen.value += 1
            if event == "bad":
                leave()
    else:

        @app.process(events, errors=DEAD_LETTER)
        async def count(ctx: Context, event: str, seen: Annotated[ValueState[int], Default(0)]) -> None:
            seen.value += 1
            await (asyncio.sleep(0) if way == "waits" else nothing())
            if event == "bad" and way == "timer":
                ctx.timers.after(1, name="leaving")
            elif event == "bad":
                leave()

        @count.on_timer("leaving")
        async def leaving(ctx: Context, seen: Annotated[ValueState[int], Default(0)]) -> None:
            leave()

    with AppHarness(app) as harness:
        harness.send_many(events, ["good", "bad", "good"])
        harness.advance_watermark(MAX_TIME)
        (letter,) = harness.dead_letters(count)
        assert (letter.error_type, letter.error) == ("SystemExit", "no such thing")
        assert harness.state(count, "seen", "k") == (3 if way == "timer" else 2)

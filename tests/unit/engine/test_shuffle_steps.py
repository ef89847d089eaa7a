"""Shuffles that filter, project and combine what they send: results are as if the service behind had done it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import DEAD_LETTER, STOP, Context, ErrorPolicy, EventTime, Monotonic, ValueState, retry
from tidegate.codecs import codec_for
from tidegate.engine.processing.context import STAMP_HEADER
from tidegate.engine.topology.shuffle import ShuffleHandler
from tidegate.errors import DefinitionError, ServiceFailedError
from tidegate.functions.declaration.handler_spec import HandlerSpec
from tidegate.functions.declaration.signature import read_signature
from tidegate.functions.definition import ExecutionSpec, Guarantee, InputSpec, ServiceDefinition
from tidegate.functions.shuffle_steps import ShuffleSteps
from tidegate.functions.topics import TopicDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.testing import AppHarness

FOREVER = 1e9


class Sale(msgspec.Struct, frozen=True):
    shop: str
    cents: int
    at: int = 0


class Sum(msgspec.Struct, frozen=True):
    count: int
    cents: int


def topic(name: str, type_: Any, **options: Any) -> TopicDefinition:
    return TopicDefinition(name=name, codec=codec_for(type_), **{"partitions": 2, **options})


SALES = topic("sales", Sale, time=EventTime("at"), watermark=Monotonic())
SUMS = topic("sums", Sum)


def is_paid(sale: Sale) -> bool:
    if sale.cents == 13:
        raise LookupError("thirteen")
    return sale.cents > 0


def to_sum(sale: Sale) -> Sum:
    return Sum(1, sale.cents)


def add(one: Sum, other: Sum) -> Sum:
    if other.cents == 99:
        raise ArithmeticError("ninety-nine")
    return Sum(one.count + other.count, one.cents + other.cents)


def shop_of(sale: Sale) -> str:
    return sale.shop


COMBINED = ShuffleSteps(filter=is_paid, project=to_sum, combine=add, codec=codec_for(Sum))
PROJECTED = ShuffleSteps(filter=is_paid, project=to_sum, codec=codec_for(Sum))


async def total(ctx: Context, sum_: Sum, sums: ValueState[Sum | None]) -> None:
    known = sums.value or Sum(0, 0)
    sums.value = Sum(known.count + sum_.count, known.cents + sum_.cents)
    ctx.emit(sum_)


@dataclass(frozen=True)
class Planned:
    definition: AppDefinition

    def define(self) -> AppDefinition:
        return self.definition


def app(
    steps: ShuffleSteps | None = COMBINED,
    handler: Any = total,
    *,
    key: Any = shop_of,
    errors: ErrorPolicy = STOP,
    guarantee: Guarantee = "exactly_once",
    out: TopicDefinition = SUMS,
) -> Planned:
    signature = read_signature(handler, {}, event="event")
    service = ServiceDefinition(
        name="totals",
        inputs=(InputSpec(topic=SALES, handler=signature.handler, key=key, shuffle=steps),),
        outputs={out.name: out},
        states={state.name: state for state in signature.states},
        execution=ExecutionSpec(guarantee=guarantee),
        errors=errors,
    )
    return Planned(AppDefinition(id="app", services=(service,), topics=(SALES, out), options={}))


def sell(harness: AppHarness, *sales: Sale) -> None:
    """Read and handled, and not committed."""
    harness.send_many("sales", sales, key=lambda sale: str(sale.at), settle=False)
    harness.settle(commit=False)


def shuffled(harness: AppHarness) -> list[Any]:
    return harness.records("app.totals.sales.by-key")


def state(harness: AppHarness, shop: str) -> Sum | None:
    found = harness.state("totals", "sums", shop)
    assert found is None or isinstance(found, Sum)
    return found


# -- filter and project ------------------------------------------------------------------------------------------------


def test_values_are_dropped_and_replaced_before_they_are_sent() -> None:
    with AppHarness(app(PROJECTED)) as harness:
        sell(harness, Sale("a", 5, 1), Sale("a", -1, 2), Sale("b", 7, 3))
        harness.settle()
        sent = sorted((record.key, record.value, record.timestamp) for record in shuffled(harness))
        assert sent == [("a", Sum(1, 5), 1), ("b", Sum(1, 7), 3)]
        assert (state(harness, "a"), state(harness, "b")) == (Sum(1, 5), Sum(1, 7))


def test_a_filter_alone_sends_the_bytes_as_they_are() -> None:
    async def keep(ctx: Context, sale: Sale, last: ValueState[Sale | None]) -> None:
        last.value = sale

    with AppHarness(app(ShuffleSteps(filter=is_paid), keep)) as harness:
        raw = b'{ "shop": "a", "cents": 5, "at": 1, "more": true }'
        harness.send_raw("sales", key=b"k", value=raw, headers=(("h", b"1"),))
        harness.send_raw("sales", key=b"k", value=b'{"shop":"a","cents":0}')
        (record,) = harness.run(read(harness, "app.totals.sales.by-key"))
        assert record.value == raw
        assert ("h", b"1") in record.headers


async def read(harness: AppHarness, name: str) -> list[Any]:
    from tidegate.testing.helpers import all_records

    return [record for _, record in await all_records(harness.log, name)]


def test_a_dropped_record_advances_the_watermark() -> None:
    with AppHarness(app(PROJECTED)) as harness:
        sell(harness, *(Sale("a", -1, at) for at in range(1000, 1100)))
        harness.settle()
        assert shuffled(harness) == []
        behind = [task for name, task in harness.engine.tasks.items() if name.startswith("totals.0")]
        assert [task.time.watermark >= 1090 for task in behind] == [True]


def test_the_steps_make_a_shuffle_where_the_key_is_kept() -> None:
    with AppHarness(app(key=None)) as harness:
        harness.send_raw("sales", key=b"k", value=b'{"shop":"a","cents":5}')
        assert state(harness, "k") == Sum(1, 5)


# -- combine -----------------------------------------------------------------------------------------------------------


def test_a_commit_sends_one_record_for_each_key_with_the_latest_time() -> None:
    with AppHarness(app()) as harness:
        sell(harness, *(Sale("ab"[at % 2], 100 + at, at) for at in range(1, 41)))
        assert shuffled(harness) == []
        harness.settle()
        sent = [(record.key, record.value, record.timestamp) for record in shuffled(harness)]
        by_key = {key: [(value, at) for name, value, at in sent if name == key] for key in ("a", "b")}
        for key, parity, last in (("a", 0, 40), ("b", 1, 39)):
            cents = sum(100 + at for at in range(1, 41) if at % 2 == parity)
            assert sum(value.cents for value, _ in by_key[key]) == cents
            assert len(by_key[key]) <= 2, "one per task of the shuffle"
            assert max(at for _, at in by_key[key]) == last
            assert state(harness, key) == Sum(20, cents)


def test_each_commit_sends_the_records_since_the_previous_one() -> None:
    with AppHarness(app(key=None)) as harness:
        for cents in ((1, 2, 3), (10, 20)):
            harness.send_many("sales", [Sale("a", it) for it in cents], key=lambda _: "k")
        assert [record.value for record in shuffled(harness)] == [Sum(3, 6), Sum(2, 30)]


def test_values_are_combined_in_the_order_in_which_they_came() -> None:
    seen: list[tuple[str, str]] = []

    def note(one: Sale, other: Sale) -> Sale:
        seen.append((one.shop, other.shop))
        return Sale(one.shop + other.shop, 0)

    async def ignore(ctx: Context, sale: Sale) -> None: ...

    with AppHarness(app(ShuffleSteps(combine=note), ignore, key=None)) as harness:
        harness.send_many("sales", [Sale(it, 0) for it in "abc"], key=lambda _: "k")
        assert seen == [("a", "b"), ("ab", "c")]


def test_uncommitted_combined_records_are_combined_again_after_a_crash() -> None:
    with AppHarness(app()) as harness:
        sell(harness, *(Sale("a", 1, at) for at in range(10)))
        harness.crash()
        sell(harness, *(Sale("a", 1, at) for at in range(10, 15)))
        harness.settle()
        harness.crash()
        assert state(harness, "a") == Sum(15, 15)
        assert sum(record.value.count for record in shuffled(harness)) == 15


def test_combined_records_count_towards_the_commit_threshold() -> None:
    with AppHarness(app(key=None), commit_changes=3, commit_interval=FOREVER) as harness:
        task = harness.engine.tasks["totals.sales.by-key.0"], harness.engine.tasks["totals.sales.by-key.1"]

        def due() -> bool:
            return any(it.commit_due(harness.clock.monotonic(), FOREVER, FOREVER) for it in task)

        for number in range(20):
            harness.send("sales", Sale("a", 1), key=f"k{number % 2}", settle=False)
        harness.settle(commit=False)
        assert not due()
        for number in range(20):
            harness.send("sales", Sale("a", 1), key=f"k{number}", settle=False)
        harness.settle(commit=False)
        assert due()


def test_at_least_once_sends_combined_records_with_the_commit() -> None:
    with AppHarness(app(guarantee="at_least_once")) as harness:
        sell(harness, Sale("a", 1, 1), Sale("a", 2, 2))
        assert shuffled(harness) == []
        harness.settle()
        assert state(harness, "a") == Sum(2, 3)
        sell(harness, Sale("a", 4, 3))
        harness.crash()
        assert state(harness, "a") == Sum(3, 7)


def test_at_least_once_sends_uncombined_records_at_once() -> None:
    with AppHarness(app(PROJECTED, guarantee="at_least_once")) as harness:
        sell(harness, Sale("a", 1, 1))
        assert [record.value for record in shuffled(harness)] == [Sum(1, 1)]


def test_a_shuffle_of_several_inputs_combines_them_into_one_record_for_each_key() -> None:
    returns = topic("returns", Sale, time=EventTime("at"), watermark=Monotonic())
    reader = HandlerSpec(function=total, event_type=Sum)
    negative = ShuffleSteps(project=lambda sale: Sum(1, -sale.cents), combine=add, codec=codec_for(Sum))
    service = ServiceDefinition(
        name="merged",
        inputs=(
            InputSpec(topic=SALES, handler=ShuffleHandler(key=shop_of, steps=COMBINED, reader=reader)),
            InputSpec(topic=returns, handler=ShuffleHandler(key=shop_of, steps=negative, reader=reader)),
        ),
        outputs={SUMS.name: SUMS},
    )
    definition = AppDefinition(id="app", services=(service,), topics=(SALES, returns, SUMS), options={})
    with AppHarness(Planned(definition), partitions=1) as harness:
        for name in ("sales", "returns"):
            harness.send_many(name, [Sale("a", 7, 1), Sale("b", 3, 2)], key=lambda _: "k", settle=False)
        harness.settle()
        assert sorted(harness.outputs("sums"), key=str) == [Sum(2, 0), Sum(2, 0)]


# -- epochs and rescaling ----------------------------------------------------------------------------------------------


def test_a_combined_record_belongs_to_the_epoch_of_its_commit(tmp_path: Path) -> None:
    with AppHarness(app(), checkpoints=tmp_path) as harness:
        sell(harness, Sale("a", 1, 1), Sale("a", 2, 2))
        harness.checkpoint("cut")
        sell(harness, Sale("a", 4, 3))
        harness.settle()
        records = harness.run(read(harness, "app.totals.sales.by-key"))
        stamps = [dict(record.headers)[STAMP_HEADER].rpartition(b"|")[2] for record in records]
        assert len(set(stamps)) == 2, "before the cut, and after it"
        assert state(harness, "a") == Sum(3, 7)


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_savepoint_with_combined_in_flight_records_restores_at_any_parallelism(
    tmp_path: Path, partitions: int
) -> None:
    with AppHarness(app(), checkpoints=tmp_path) as harness:
        sell(harness, *(Sale(f"s{at % 5}", 1, at) for at in range(40)))
        harness.checkpoint("cut")
        sell(harness, *(Sale(f"s{at % 5}", 1, at) for at in range(40, 60)))
        harness.settle()
        harness.restore("cut", partitions=partitions)
        assert [state(harness, f"s{shop}") for shop in range(5)] == [Sum(12, 12)] * 5


def test_steps_apply_to_records_in_flight_from_before_the_shuffle(tmp_path: Path) -> None:
    """A service that read another's output directly, and is restored behind a shuffle with steps."""

    def two(steps: ShuffleSteps | None, key: Any, handler: Any) -> Planned:
        between = topic("between", Sale)
        reader = read_signature(handler, {}, event="event")
        first = read_signature(pass_on, {}, event="event")
        services = (
            ServiceDefinition(
                name="first", inputs=(InputSpec(topic=SALES, handler=first.handler),), outputs={"between": between}
            ),
            ServiceDefinition(
                name="totals",
                inputs=(InputSpec(topic=between, handler=reader.handler, key=key, shuffle=steps),),
                outputs={"sums": SUMS},
                states={known.name: known for known in reader.states},
            ),
        )
        return Planned(AppDefinition(id="app", services=services, topics=(SALES, between, SUMS), options={}))

    async def pass_on(ctx: Context, sale: Sale) -> None:
        ctx.emit(sale)

    async def directly(ctx: Context, sale: Sale, sums: ValueState[Sum | None]) -> None:
        known = sums.value or Sum(0, 0)
        if is_paid(sale):
            sums.value = Sum(known.count + 1, known.cents + sale.cents)

    sales = [Sale("k", cents, at) for at, cents in enumerate((1, -1, 2, 0, 4))]
    with AppHarness(two(None, None, directly), checkpoints=tmp_path) as harness:
        harness.send_many("sales", sales, key=lambda _: "k")
        harness.checkpoint("cut")
        harness.restore("cut", app=two(PROJECTED, None, total), partitions=3)
        harness.send_many("sales", sales, key=lambda _: "k")
        assert state(harness, "k") == Sum(6, 14)


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("errors", [DEAD_LETTER, retry(5, backoff=60, then=DEAD_LETTER)], ids=["at once", "no retry"])
def test_a_failed_step_follows_the_services_error_policy(errors: ErrorPolicy) -> None:
    with AppHarness(app(errors=errors, key=None)) as harness:
        sales = [Sale("a", cents) for cents in (1, 13, 2, 99, 4)]  # 13: the filter fails; 99: combining does
        harness.send_many("sales", sales, key=lambda _: "k")
        assert state(harness, "k") == Sum(3, 7)
        letters = harness.dead_letters("totals")
        assert [msgspec.json.decode(letter.value or b"", type=Sale).cents for letter in letters] == [13, 99]
        assert [letter.error_type for letter in letters] == ["ShuffleStepError"] * 2
        assert ["LookupError: thirteen" in letters[0].error, "ArithmeticError: ninety" in letters[1].error] == [
            True
        ] * 2


def test_a_step_that_fails_stops_the_worker_by_default() -> None:
    with AppHarness(app()) as harness, pytest.raises(ServiceFailedError, match=r"shuffle of 'sales' failed.*thirteen"):
        sell(harness, Sale("a", 13))


def test_a_projection_to_an_undeclared_type_follows_the_error_policy() -> None:
    steps = ShuffleSteps(project=lambda sale: sale.cents, codec=codec_for(Sum))
    with AppHarness(app(steps, errors=DEAD_LETTER)) as harness:
        sell(harness, Sale("a", 5))
        harness.settle()
        (letter,) = harness.dead_letters("totals")
        assert (letter.error_type, letter.value) == ("EncodeError", b'{"shop":"a","cents":5,"at":0}')


class Names(msgspec.Struct, frozen=True):
    names: list[str]


def test_a_record_that_makes_a_combined_record_too_large_follows_the_error_policy() -> None:
    """The commit is refused; the task continues one record at a time, and finds the record at fault."""

    async def count(ctx: Context, names: Names, sums: ValueState[int | None]) -> None:
        sums.value = (sums.value or 0) + len(names.names)

    steps = ShuffleSteps(
        project=lambda sale: Names([sale.shop * sale.cents]),
        combine=lambda one, other: Names([*one.names, *other.names]),
        codec=codec_for(Names),
    )
    with AppHarness(app(steps, count, key=None, errors=DEAD_LETTER)) as harness:
        harness.log.max_record_bytes = 10_000
        harness.crash()
        sales = [Sale("x", cents) for cents in (10, 20, 20_000, 30)]
        harness.send_many("sales", sales, key=lambda _: "k")
        assert harness.state("totals", "sums", "k") == 3
        (letter,) = harness.dead_letters("totals")
        assert letter.error_type == "RecordTooLargeError"
        assert msgspec.json.decode(letter.value or b"", type=Sale).cents == 20_000


def test_steps_without_effect_are_refused() -> None:
    with pytest.raises(DefinitionError, match="without steps"):
        ShuffleSteps()
    with pytest.raises(DefinitionError, match="give both, or neither"):
        ShuffleSteps(filter=is_paid, codec=codec_for(Sum))


# -- whatever the commits ----------------------------------------------------------------------------------------------

Moves = st.lists(
    st.one_of(
        st.tuples(st.just("sell"), st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 9)), max_size=6)),
        st.tuples(st.sampled_from(["commit", "crash", "restart"]), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(moves=Moves, steps=st.sampled_from([COMBINED, PROJECTED]))
def test_combining_commits_and_crashes_do_not_change_results(moves: list[tuple[str, Any]], steps: ShuffleSteps) -> None:
    counts: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    with AppHarness(app(steps)) as harness:
        for move, sold in moves:
            if move == "sell":
                sell(harness, *(Sale(shop, it) for shop, it in sold))
                for shop, it in sold:
                    if it > 0:
                        counts[shop] += 1
                        cents[shop] += it
            elif move == "commit":
                harness.settle()
            elif move == "crash":
                harness.crash()
            else:
                harness.restart()
        harness.settle()
        for shop in "abc":
            assert (state(harness, shop) or Sum(0, 0)) == Sum(counts[shop], cents[shop])

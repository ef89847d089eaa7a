"""Random programs of state operations with failures, suspensions, commits and crashes, against plain objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import Bench, Gates
from tidegate import (
    SKIP,
    Aggregate,
    AggregateFunction,
    AggregatingState,
    Context,
    Default,
    ListState,
    MapState,
    OperatorState,
    Reduce,
    ReducingState,
    Timer,
    ValueState,
)

KEYS = ("a", "b", "b\x00", "c")
NAMES = ("x", "y", "z", "")
FAR = 10**12

gates = Gates()


class Sum(AggregateFunction[int, list[int], int]):
    """Its accumulator changes in place."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], item: int) -> list[int]:
        accumulator.append(item)
        return accumulator

    def result(self, accumulator: list[int]) -> int:
        return sum(accumulator)


async def interpret(
    ctx: Context,
    event: Any,
    number: Annotated[ValueState[int], Default(0)],
    things: Annotated[ValueState[list[Any]], Default(factory=list)],
    names: MapState[str, int],
    groups: Annotated[MapState[str, list[int]], Default(factory=list)],
    items: ListState[int],
    nested: ListState[list[int]],
    top: Annotated[ReducingState[int], Reduce(max)],
    total: Annotated[AggregatingState[int, int], Aggregate(Sum())],
    log: OperatorState[str],
) -> None:
    for operation, name, value in event:
        match operation:
            case "gate":
                await gates.wait(value)
            case "yield":
                await asyncio.sleep(0)
            case "fail":
                raise ValueError("on purpose")
            case "unstorable":
                things.value.append(object())
            case "number set":
                number.value = value
            case "number add":
                number.value += value
            case "number clear":
                number.clear()
            case "things add":
                things.value.append(value)
            case "things deep":
                if things.value and isinstance(things.value[0], list):
                    things.value[0].append(value)
                else:
                    things.value = [[value], *things.value]
            case "things clear":
                things.clear()
            case "names set":
                names[name] = value
            case "names del":
                names.pop(name, None)
            case "names double":
                for known, old in names.items():
                    names[known] = old * 2
            case "names clear":
                names.clear()
            case "groups add":
                groups[name].append(value)
            case "groups all":
                for group in groups.values():
                    group.append(value)
            case "groups del":
                groups.pop(name, None)
            case "items add":
                items.append(value)
            case "items pop":
                if items:
                    items.popleft()
            case "items replace":
                items.replace([value, value + 1])
            case "items clear":
                items.clear()
            case "nested add":
                nested.append([value])
            case "nested all":
                for inner in nested:
                    inner.append(value)
            case "nested pop":
                if nested:
                    nested.popleft()
            case "top add":
                top.add(value)
            case "total add":
                total.add(value)
            case "log add":
                log.append(f"{ctx.key}{value}")
            case "timer set":
                ctx.timers.at(FAR + value, name=f"t{name}")
            case "timer cancel":
                ctx.timers.cancel(f"t{name}")
            case "look":
                seen = [number.value, number.exists, things.value, things.exists, dict(names), dict(groups)]
                lists = [list(items), len(items), list(nested), top.value, total.value]
                ctx.emit([*seen, *lists, sorted(timer.name for timer in ctx.timers)], timestamp=1)


fired: list[tuple[str, str, int]] = []


async def on_timer(ctx: Context, timer: Timer) -> None:
    fired.append((ctx.key, timer.name, timer.at))


class Model:
    """What one key should hold."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.things: list[Any] | None = None
        self.names: dict[str, int] = {}
        self.groups: dict[str, list[int]] = {}
        self.items: list[int] = []
        self.nested: list[list[int]] = []
        self.top: int | None = None
        self.total: list[int] | None = None
        self.log: list[str] = []
        self.timers: dict[str, int] = {}
        self.outputs: list[Any] = []

    def run(self, key: str, program: Any) -> Model:
        """The model after a program; the same as before, if it fails."""
        after = deepcopy(self)
        try:
            for operation, name, value in program:
                after.step(key, operation, name, value)
        except ValueError:
            return self
        return self if any(isinstance(thing, _Unstorable) for thing in after.things or ()) else after

    def step(self, key: str, operation: str, name: str, value: int) -> None:
        match operation:
            case "fail":
                raise ValueError
            case "unstorable":
                self.things = [*(self.things or []), _Unstorable()]
            case "number set":
                self.number = value
            case "number add":
                self.number = (self.number or 0) + value
            case "number clear":
                self.number = None
            case "things add":
                self.things = [*(self.things or []), value]
            case "things deep":
                if self.things and isinstance(self.things[0], list):
                    self.things[0].append(value)
                else:
                    self.things = [[value], *(self.things or [])]
            case "things clear":
                self.things = None
            case "names set":
                self.names[name] = value
            case "names del":
                self.names.pop(name, None)
            case "names double":
                self.names = {known: old * 2 for known, old in self.names.items()}
            case "names clear":
                self.names = {}
            case "groups add":
                self.groups.setdefault(name, []).append(value)
            case "groups all":
                for group in self.groups.values():
                    group.append(value)
            case "groups del":
                self.groups.pop(name, None)
            case "items add":
                self.items.append(value)
            case "items pop":
                self.items = self.items[1:]
            case "items replace":
                self.items = [value, value + 1]
            case "items clear":
                self.items = []
            case "nested add":
                self.nested.append([value])
            case "nested all":
                for inner in self.nested:
                    inner.append(value)
            case "nested pop":
                self.nested = self.nested[1:]
            case "top add":
                self.top = value if self.top is None else max(self.top, value)
            case "total add":
                self.total = [*(self.total or []), value]
            case "log add":
                self.log.append(f"{key}{value}")
            case "timer set":
                self.timers[f"t{name}"] = FAR + value
            case "timer cancel":
                self.timers.pop(f"t{name}", None)
            case "look":
                self.look()

    def look(self) -> None:
        things = self.things or []
        if any(isinstance(thing, _Unstorable) for thing in things):
            raise ValueError  # it cannot be emitted either
        seen = [self.number or 0, self.number is not None, things, self.things is not None, self.names, self.groups]
        total = None if self.total is None else sum(self.total)
        lists = [self.items, len(self.items), self.nested, self.top, total, sorted(self.timers)]
        self.outputs.append(deepcopy([*seen, *lists]))


class _Unstorable:
    pass


PLAIN = (
    "number set", "number add", "number clear", "things add", "things deep", "things clear", "names set", "names del",
    "names double", "names clear", "groups add", "groups all", "groups del", "items add", "items pop", "items replace",
    "items clear", "nested add", "nested all", "nested pop", "top add", "total add", "log add", "timer set",
    "timer cancel", "look", "look", "yield", "gate", "gate", "gate", "gate",
)  # fmt: skip
operations = st.tuples(st.sampled_from(PLAIN), st.sampled_from(NAMES), st.integers(0, 3))
endings = st.sampled_from([[], [], [], [("fail", "", 0)], [("unstorable", "", 0)]])
programs = st.tuples(st.lists(operations, max_size=8), endings).map(lambda parts: [*parts[0], *parts[1]])
steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(KEYS), programs),
    st.tuples(st.just("put"), st.sampled_from(KEYS), programs),
    st.tuples(st.sampled_from(["run", "commit", "commit", "crash", "crash twice", "restart"]), st.none(), st.none()),
    st.tuples(st.just("open"), st.integers(0, 3), st.none()),
)


def reopen(bench: Bench, *, commit: bool) -> None:
    bench.run(bench.engine.close_tasks(commit=commit))
    gates.forget()
    bench.run(bench._open())


def forget_early(bench: Bench) -> None:
    """Let values leave memory as soon as they may."""
    for task in bench.engine.tasks.values():
        task._backend._limit = 2


def perform(bench: Bench, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", key, program):
            bench.put(key, program, timestamp=1, settle=False)
        case ("run", _, _):
            bench.settle(wait=False, commit=False)
        case ("commit", _, _):
            bench.settle(wait=False)
        case ("crash", _, _):
            reopen(bench, commit=False)
        case ("crash twice", _, _):
            reopen(bench, commit=False)
            reopen(bench, commit=False)
        case ("restart", _, _):
            reopen(bench, commit=True)
        case ("open", gate, _):
            bench.call(lambda: gates.open(gate))


def compare(bench: Bench, models: dict[str, Model]) -> None:
    outputs: dict[str, list[Any]] = {key: [] for key in KEYS}
    for record in bench.records(bench.out):
        outputs[record.key].append(record.value)
    for key, model in models.items():
        assert outputs[key] == model.outputs
        states = [bench.value(name, key) for name in ("number", "things", "names", "groups", "items", "nested", "top")]
        assert states == [model.number, model.things, model.names, model.groups, model.items, model.nested, model.top]
        assert bench.value("total", key) == (None if model.total is None else sum(model.total))
        assert {timer.name: timer.at for timer in bench.timers(bench.service, key)} == model.timers
    assert Counter(bench.value("log")) == Counter(entry for model in models.values() for entry in model.log)


def play(make: Callable[[], Bench], script: list[tuple[Any, ...]]) -> None:
    gates.close()
    fired.clear()
    models = {key: Model() for key in KEYS}
    with make() as bench:
        for step in script:
            forget_early(bench)
            perform(bench, step)
            if step[0] == "put":
                models[step[1]] = models[step[1]].run(step[1], step[2])
        for gate in range(4):
            bench.call(partial(gates.open, gate))
        bench.settle()
        compare(bench, models)
        if len(script) % 2:
            reopen(bench, commit=False)
            compare(bench, models)
        bench.finish()
        expected = [(key, name, at) for key, model in models.items() for name, at in model.timers.items()]
        assert sorted(fired) == sorted(expected)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", logger="tidegate")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=25))
def test_each_keys_final_state_is_independent_of_faults(script: list[tuple[Any, ...]]) -> None:
    play(lambda: Bench(interpret, timers={None: on_timer}, service={"errors": SKIP}), script)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=25))
def test_so_it_does_with_few_handlers_at_a_time(script: list[tuple[Any, ...]]) -> None:
    options = {"errors": SKIP, "concurrency": 2}
    play(lambda: Bench(interpret, timers={None: on_timer}, service=options, buffer_records=3), script)

"""The template of the hot loop: every variant compiles, is short and simple, and shows its lines in tracebacks."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from tests.support import Bench
from tidegate import DEAD_LETTER, BoundedOutOfOrderness, Context, Default, ValueState
from tidegate.engine.processing.operators import record_loop
from tidegate.engine.processing.operators.record_loop import Shape, compiled_loop, loop_source

FLAGS = [name for name, field in Shape.__dataclass_fields__.items() if field.type == "bool"]


def shapes() -> Iterator[Shape]:
    """All that a service can have."""
    for values in itertools.product((False, True), repeat=len(FLAGS)):
        flags = dict(zip(FLAGS, values, strict=True))
        if flags["bounded"] and flags["observed"]:
            continue
        if flags["inline"] and (flags["mutable"] or not flags["single"]):
            continue
        if flags["single"]:
            yield Shape(states=1, **flags)
        else:
            yield from (Shape(states=states, handles=states, **flags) for states in (0, 1, 3))


def complexity(function: ast.AST) -> int:
    """The cyclomatic complexity of McCabe."""
    branches = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler)
    return 1 + sum(isinstance(node, branches) for node in ast.walk(function))


def test_every_variant_compiles_and_is_short_and_simple() -> None:
    checked = 0
    for shape in shapes():
        source = loop_source(shape)
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.AsyncFunctionDef if shape.awaits else ast.FunctionDef)
        assert len(source.splitlines()) <= 80
        assert complexity(function) <= 20
        assert "#?" not in source
        assert "@" not in source
        checked += 1
    assert checked == 432
    assert callable(compiled_loop(Shape()))


def test_every_mark_of_the_template_names_a_feature() -> None:
    marks = {mark.strip().removeprefix("not ") for mark in re.findall(r"#\?(.*)", record_loop._TEMPLATE)}
    assert marks == {*FLAGS, "channel"}


def test_a_shape_is_compiled_once() -> None:
    assert compiled_loop(Shape(states=2, handles=2)) is compiled_loop(Shape(handles=2, states=2))


def test_a_variant_contains_only_the_code_of_its_features() -> None:
    plain = loop_source(Shape())
    for word in ("await", "state", "seen", "extract", "mark :=", "timers_set:", "fault_point", "settle"):
        assert word not in plain.replace("states = loop", "").replace(", loop.states", "").replace("states\n", "\n")
    assert "fault_point" in loop_source(Shape(faults=True))
    assert "call(context, value, state0, state1)" in loop_source(Shape(states=2, handles=2))
    assert "await call(context, value)" in loop_source(Shape(awaits=True))
    assert "handle0.seen = handle1.seen = None" in loop_source(Shape(states=2, handles=2))


def failing(ctx: Context, event: Any, total: Annotated[ValueState[int], Default(0)]) -> None:
    raise ValueError("on purpose")


def test_a_traceback_shows_the_line_of_the_variant() -> None:
    with Bench(failing, service={"errors": DEAD_LETTER}) as bench:
        bench.put("k")
        (letter,) = bench.dead_letters(bench.service)
        assert "record loop: bounded, channel, inline, single, 1 states, 0 handles" in letter.traceback
        assert "call(context, value, state0)" in letter.traceback


def test_the_module_prints_variants() -> None:
    module = [sys.executable, "-m", "tidegate.engine.processing.operators.record_loop"]
    printed = subprocess.run(module, check=True, capture_output=True, text=True).stdout
    assert loop_source(Shape(bounded=True)) in printed
    assert len(re.findall(r"^(?:async )?def handle_records", printed, re.MULTILINE)) == 3


def test_faults_may_be_armed_while_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def handle(ctx: Context, event: Any) -> None: ...

    with Bench(handle, topic={"watermark": BoundedOutOfOrderness(by=1)}) as bench:
        bench.put("k")
        monkeypatch.setitem(compiled_loop(Shape(bounded=True, faults=True)).__globals__, "fault_point", seen.append)
        monkeypatch.setattr("tidegate.faults.armed", True)
        bench.put("k")
        assert seen[:2] == ["handler.before", "handler.after"]

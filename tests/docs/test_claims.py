"""What the documentation says about the code is so."""

from __future__ import annotations

import ast
import re
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest

import tidegate
import tidegate.testing
from tests.docs.pages import ROOT
from tidegate import App, Context
from tidegate.checkpoints.coordination.status import CheckpointMetrics
from tidegate.engine.runtime.metrics import Metrics
from tidegate_app.manual import manual

DOCS = ROOT / "docs"
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_METRIC = re.compile(r"`(tidegate_\w+)`")


def named_tests() -> list[tuple[str, str]]:
    return sorted(set(_TEST.findall((DOCS / "guarantees.md").read_text())))


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions) and node.name.startswith("test_")}


@pytest.mark.parametrize(("path", "name"), named_tests(), ids=lambda part: part)
def test_the_tests_that_prove_the_guarantees_exist(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"docs/guarantees.md names {path}, which does not exist"
    assert name in names_in(ROOT / path), f"docs/guarantees.md names {name}, which is not in {path}"


def test_every_guarantee_names_a_test() -> None:
    text = (DOCS / "guarantees.md").read_text()
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    assert sections
    assert [section.splitlines()[0] for section in sections if not _TEST.search(section)] == []


def test_every_metric_is_described() -> None:
    described = set(_METRIC.findall((DOCS / "operations.md").read_text()))
    metrics = Metrics()
    CheckpointMetrics(metrics.registry)
    exposed = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in metrics.registry.collect()
    }
    assert described == exposed


@pytest.mark.parametrize(
    "described",
    [
        *(f"ctx.{name}" for name in vars(Context) if not name.startswith("_")),
        *(name for name in signature(App.process).parameters if name not in ("self", "inputs")),
        *(name for name in signature(App.topic).parameters if name not in ("self", "name", "misplaced")),
    ],
)
def test_the_handlers_page_describes_every_context_member_and_option(described: str) -> None:
    assert re.search(rf"^\|[^|]*`{re.escape(described)}\b", (DOCS / "handlers.md").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("module", [tidegate, tidegate.testing])
def test_every_public_name_has_a_docstring(module: ModuleType) -> None:
    public = {name: getattr(module, name) for name in module.__all__}
    generated = {name for name, item in public.items() if (item.__doc__ or "").startswith(f"{name}(")}
    silent = {name for name, item in public.items() if callable(item) and not item.__doc__}
    assert generated | silent == set()


def test_the_readme_contains_both_make_commands() -> None:
    targets = (ROOT / "Makefile").read_text()
    readme = (ROOT / "README.md").read_text()
    for command in ("make run", "make test"):
        assert re.search(rf"^{command}\b", readme, flags=re.MULTILINE), command
        assert re.search(rf"^{command.removeprefix('make ')}:", targets, flags=re.MULTILINE), command


def test_the_page_of_the_command_line_is_current() -> None:
    assert (DOCS / "cli.md").read_text() == manual(), "run 'make docs'"

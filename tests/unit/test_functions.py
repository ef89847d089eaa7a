"""Functions stay short and simple: at most 80 lines each, as ruff keeps their complexity at most 20."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 80


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and length in lines, decorators left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_function_is_longer_than_80_lines() -> None:
    folders = [ROOT / folder for folder in ("framework", "api", "app", "services", "spark")]
    lengths = {
        f"{path.relative_to(ROOT)}: {name}": length
        for folder in folders
        for path in folder.rglob("*.py")
        for name, length in functions(path.read_text())
    }
    assert len(lengths) > 2000
    assert {where: length for where, length in lengths.items() if length > LONGEST} == {}


def test_a_long_function_would_be_found() -> None:
    assert [*functions("def long():\n" + "    pass\n" * LONGEST)] == [("long", LONGEST + 1)]


def test_ruff_keeps_complexity_at_most_20() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "C901" in lint["select"]
    assert lint["mccabe"]["max-complexity"] == 20

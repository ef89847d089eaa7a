"""The architecture page names only what exists: folders of the tree, modules, and the classes in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "framework/tidegate"
PAGE = (ROOT / "docs/architecture.md").read_text()
TREE = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0]

_ANNOUNCED = ("windows/",)
"""Packages that the page says are to come."""


def tree_paths() -> list[str]:
    """The paths of the tree: a line's depth is its indentation by two spaces."""
    found: list[str] = []
    parents: list[str] = []
    for line in TREE.splitlines():
        name = re.match(r"( *)(\S+)", line)
        assert name is not None
        if len(name[1]) > 10:
            continue  # the description of the line before goes on
        depth, rest = len(name[1]) // 2, line.strip()
        entries = re.match(r"(?:\S+, )*\S+", rest)
        assert entries is not None
        found += ["".join([*parents[:depth], entry]) for entry in entries[0].split(", ")]
        if rest.split()[0].endswith("/"):
            parents[depth:] = [rest.split()[0]]
    return found


def named_paths() -> list[str]:
    return sorted(set(re.findall(r"`([\w./-]+(?:\.py|/))`", PAGE)) - set(_ANNOUNCED))


def resolved(path: str) -> Path:
    inside = LIBRARY / path
    return inside if inside.exists() else ROOT / path


@pytest.mark.parametrize("path", [*tree_paths(), *named_paths()])
def test_every_path_exists(path: str) -> None:
    assert resolved(path).exists(), f"docs/architecture.md names {path}"


@pytest.mark.parametrize(("name", "path"), re.findall(r"`(\w+)(?:\.\w+)?`\s+\(`([\w/]+\.py)`", PAGE))
def test_every_class_is_in_the_module_beside_it(name: str, path: str) -> None:
    assert re.search(rf"^class {name}\b", resolved(path).read_text(), re.MULTILINE), f"{path} has no class {name}"


def test_the_page_covers_the_library() -> None:
    """Every folder of the library is in the tree."""
    listed = {path.rstrip("/") for path in tree_paths()}
    folders = {
        str(folder.relative_to(ROOT))
        for folder in LIBRARY.rglob("*")
        if folder.is_dir() and (folder / "__init__.py").exists()
    }
    nested = {"framework/tidegate/logs/embedded/maintenance", "framework/tidegate/logs/kafka/connection"}  # in a line
    assert folders - nested <= listed


def test_no_folder_of_the_library_is_flat() -> None:
    """At most fifteen modules in a folder, so that each name can be found."""
    for folder in (LIBRARY, *LIBRARY.rglob("*")):
        if folder.is_dir():
            modules = [module for module in folder.glob("*.py") if module.name != "__init__.py"]
            assert len(modules) <= 15, f"{folder.relative_to(ROOT)} has {len(modules)} modules: group them"

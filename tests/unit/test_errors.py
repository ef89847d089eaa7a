"""The trees with which the error modules open are those of their classes."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import tidegate.errors
import tidegate.jvm.errors
import tidegate_app.kafka.errors
import tidegate_spark.errors
from tidegate.errors import TidegateError

LINE = re.compile(r"^(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+Error)\b")

MODULES = (tidegate.errors, tidegate.jvm.errors, tidegate_app.kafka.errors, tidegate_spark.errors)


def drawn(module: ModuleType) -> list[tuple[str, str | None]]:
    """Each error of the drawing with the one above it, from top to bottom."""
    found: list[tuple[str, str | None]] = []
    above: list[str] = []
    for line in (module.__doc__ or "").splitlines():
        match = LINE.match(line)
        if match is not None:
            depth = len(match["indent"]) // 4
            del above[depth:]
            found.append((match["name"], above[-1] if above else None))
            above.append(match["name"])
    return found


def declared(module: ModuleType) -> list[tuple[str, str | None]]:
    """Each error class of the module with its base, in the order of the file."""
    classes = [known for known in vars(module).values() if isinstance(known, type) and issubclass(known, TidegateError)]
    return [(known.__name__, _base(known)) for known in classes]


def families(module: ModuleType) -> list[ModuleType]:
    """The modules that declare the errors: the submodules of a package, else the module itself."""
    if not hasattr(module, "__path__"):
        return [module]
    return [import_module(f"{module.__name__}.{found.name}") for found in iter_modules(module.__path__)]


def own(module: ModuleType) -> list[tuple[str, str | None]]:
    """What the module itself declares, in the order of the file."""
    return [(name, base) for name, base in declared(module) if vars(module)[name].__module__ == module.__name__]


def _base(known: type) -> str | None:
    first = known.__bases__[0]
    return None if first is Exception else first.__name__


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_tree_is_that_of_the_classes(module: ModuleType) -> None:
    tree = drawn(module)
    assert len(tree) > 3
    assert len(tree) == len(declared(module))
    for family in families(module):
        classes = declared(family)
        assert [drawing for drawing in tree if drawing in classes] == classes
    assert set(tree) == set(declared(module))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_error_is_exported(module: ModuleType) -> None:
    names = [name for family in families(module) for name, _ in own(family)]
    assert len(names) > 3
    assert sorted(names) == sorted(module.__all__)
    for family in families(module):
        assert {name for name, _ in own(family)} == set(family.__all__)

"""An app is found by module or by file, and what is in the way is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.errors import AppNotFoundError
from tidegate_app.app_loader import load_app

APP = "from tidegate import App\napp = App('found')\n"


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test in a directory of its own, with nothing left in sys.modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("target", ["found_a", "found_a:app", "found_a.py", "found_a.py:app", "./found_a.py"])
def test_an_app_is_found_by_module_and_by_file(target: str) -> None:
    write("found_a.py", APP)

    assert load_app(target).define().id == "found"


def test_an_app_file_in_another_directory_imports_its_siblings() -> None:
    write("sub/found_b.py", "from neighbour_b import app\n")
    write("sub/neighbour_b.py", APP)

    assert load_app("sub/found_b.py").define().id == "found"


def test_a_file_within_a_package_is_imported_as_part_of_it() -> None:
    write("pack_c/__init__.py", "")
    write("pack_c/inner/__init__.py", "")
    write("pack_c/inner/found_c.py", "from .neighbour import app\n")
    write("pack_c/inner/neighbour.py", APP)

    assert load_app("pack_c/inner/found_c.py").define().id == "found"
    assert load_app("pack_c.inner.found_c:app").define().id == "found"


def test_a_file_may_be_called_like_a_library() -> None:
    write("json.py", APP)

    assert load_app("json.py").define().id == "found"


def test_an_app_of_another_name_is_found_if_it_is_the_only_one() -> None:
    write("found_d.py", "from tidegate import App\nservice = App('found')\n")

    assert load_app("found_d").define().id == "found"


def test_of_several_apps_one_must_be_named() -> None:
    write("found_e.py", "from tidegate import App\na, b = App('a'), App('b')\n")

    with pytest.raises(AppNotFoundError, match=r"Apps in found_e: a, b\. Name one: found_e:a"):
        load_app("found_e")
    assert load_app("found_e:b").define().id == "b"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere", "there is no module 'nowhere'"),
        ("nowhere.deeper:app", "there is no module 'nowhere'"),
        ("folder/", r"folder is a directory without an __init__.py. Name it as .* files in .*folder: inside.py"),
        (".", r"is a directory without.*empty.py"),
        ("nowhere.py", r"there is no file nowhere.py. Python files in .*: broken.py"),
        ("broken", r"(?s)raises ZeroDivisionError when it is imported: division by zero.*broken.py, line 2: x = 1 / 0"),
        ("missing.py", "raises ModuleNotFoundError.*No module named 'not_installed'"),
        ("syntax.py", r"(?s)raises SyntaxError.*line 1: def \("),
        ("exits.py", "raises SystemExit"),
        ("empty.py", "empty defines no App: write app = tidegate.App"),
        ("empty.py:app", "empty has no 'app'"),
        ("wrong.py:app", "'app' is a int, not an App"),
        ("plain.py:app", "'app' is a plain Faust app"),
        (":app", "does not name an app"),
        ("empty:", "does not name an app"),
    ],
)
def test_an_app_that_cannot_be_loaded_gives_a_clear_error(target: str, message: str) -> None:
    write("folder/inside.py", "")
    write("broken.py", "\nx = 1 / 0\n")
    write("missing.py", "import not_installed\n")
    write("syntax.py", "def (\n")
    write("exits.py", "raise SystemExit(3)\n")
    write("empty.py", "")
    write("wrong.py", "app = 1\n")
    write("plain.py", "import faust\napp = faust.App('plain')\n")

    with pytest.raises(AppNotFoundError, match=message):
        load_app(target)

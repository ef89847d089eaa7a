from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import UsageError
from tidegate_app.actions.new import write_project


def test_a_project_has_an_app_a_test_and_a_readme(tmp_path: Path) -> None:
    written = write_project(tmp_path / "hello")

    assert {path.name for path in written} >= {"app.py", "test_app.py", "README.md", "pyproject.toml"}
    assert 'App("hello")' in (tmp_path / "hello" / "app.py").read_text()
    assert "$ tidegate worker app.py" in (tmp_path / "hello" / "README.md").read_text()


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    (tmp_path / "hello").mkdir()

    assert write_project(tmp_path / "hello")


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "hello").mkdir()
    (tmp_path / "hello" / "app.py").write_text("mine")

    with pytest.raises(UsageError, match="exists and is not empty"):
        write_project(tmp_path / "hello")

    assert (tmp_path / "hello" / "app.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["1st", "a b", "ä", "-x"])
def test_a_name_that_cannot_be_an_app_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid project name"):
        write_project(tmp_path / name)

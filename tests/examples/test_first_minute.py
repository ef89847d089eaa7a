"""The first command of the README in an environment that does not exist yet: what it installs, and that it works."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

SECONDS = 600
LARGEST = 130 << 20


def size_of(directory: Path) -> int:
    """On disk, as du counts it."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*") if not path.is_symlink())


@pytest.mark.slow
@pytest.mark.timeout(SECONDS)
def test_make_run_installs_only_its_dependencies(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    variables = {name: text for name, text in os.environ.items() if name not in ("VIRTUAL_ENV", "MAKEFLAGS")}
    done = subprocess.run(
        ["make", "run", f"VENV={environment}", f"DATA={tmp_path / 'data'}", "SECONDS=2"],
        cwd=ROOT, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 differences" in done.stdout
    installed = {path.name.partition("-")[0] for path in environment.glob("lib/python*/site-packages/*.dist-info")}
    assert {"tidegate", "faust_streaming", "fastapi", "rocksdict"} <= installed
    assert installed.isdisjoint({"pytest", "mypy", "ruff", "hatchling", "cryptography", "pyspark", "numpy"})
    size = size_of(environment)
    print(f"{len(installed)} packages, {size >> 20} MB")  # noqa: T201
    assert size < LARGEST

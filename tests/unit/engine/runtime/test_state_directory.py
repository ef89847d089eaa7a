"""The local stores of tasks."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from tidegate.engine.runtime.state_directory import StateDirectory
from tidegate.settings import Settings


def failing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """As if another process had added a file, several times."""
    remove, left = shutil.rmtree, iter(range(times))

    def rmtree(path: Path, *arguments: Any, **options: Any) -> None:
        if next(left, None) is not None:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        remove(path, *arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)


def some_stores(directory: Path) -> StateDirectory:
    stores = StateDirectory(directory, Settings())
    stores.open("service", 0, buffered=10).close()
    return stores


def test_a_state_directory_is_deleted_despite_a_concurrent_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = some_stores(tmp_path / "stores")
    failing(monkeypatch, 2)
    stores.destroy_all()
    assert not (tmp_path / "stores").exists()


def test_a_state_directory_that_cannot_be_deleted_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = some_stores(tmp_path / "stores")
    failing(monkeypatch, 1_000)
    with pytest.raises(OSError, match="not empty"):
        stores.destroy_all()

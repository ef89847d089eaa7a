"""File locks: their holder, and their release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.jvm.file_lock import is_locked, locked, open_locked, try_lock, wait_until_free

HOLD = """
import sys, time
from pathlib import Path
from tidegate.jvm.file_lock import open_locked
open_locked(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_lock_is_free_before_and_after_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "below" / "lock"
    assert not is_locked(path)

    with locked(path):
        assert is_locked(path)
        assert try_lock(path) is None

    assert not is_locked(path)


def test_kill_9_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(path)
        assert not wait_until_free(path, 0.1)

        holder.kill()

        assert wait_until_free(path, 10)


def test_a_process_that_inherits_the_lock_holds_it_until_it_exits(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = open_locked(path)
    with subprocess.Popen(["sleep", "600"], pass_fds=[lock]) as heir:
        os.close(lock)
        assert is_locked(path)

        heir.kill()

        assert wait_until_free(path, 10)


@pytest.mark.parametrize("look", [is_locked, lambda path: wait_until_free(path, 0)])
def test_looking_does_not_take_it(tmp_path: Path, look: object) -> None:
    assert callable(look)
    with locked(tmp_path / "lock"):
        pass
    look(tmp_path / "lock")

    lock = try_lock(tmp_path / "lock")

    assert lock is not None
    os.close(lock)

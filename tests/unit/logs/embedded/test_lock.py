"""The ownership of a directory, and the error for other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.errors import LogFailedError, LogInUseError, LogUnavailableError
from tidegate.logs.embedded import EmbeddedLog

OWNER = """
import asyncio, sys
from pathlib import Path
from tidegate.logs.embedded import EmbeddedLog

async def main():
    await EmbeddedLog(Path(sys.argv[1])).start()
    print("owned", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_the_lock_error_names_the_owning_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:  # noqa: ASYNC220 - nothing else runs
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"owned\n"
        with pytest.raises(LogInUseError, match=f"process {owner.pid} ") as refusal:
            await EmbeddedLog(tmp_path).start()
        assert "--data DIR" in str(refusal.value)
        owner.kill()
        owner.wait()
    log = EmbeddedLog(tmp_path)
    await log.start()  # the lock went with its process
    await log.stop()


async def test_two_logs_of_one_process_cannot_share_a_directory(tmp_path: Path) -> None:
    first, second = EmbeddedLog(tmp_path), EmbeddedLog(tmp_path)
    await first.start()
    with pytest.raises(LogInUseError, match=f"process {os.getpid()} "):
        await second.start()
    await first.stop()
    await second.start()
    await second.stop()


async def test_the_lock_records_its_owner_and_start_time(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    await log.start()
    assert json.loads((tmp_path / "owner.lock").read_text()).keys() == {"pid", "command", "started"}
    await log.stop()


async def test_a_file_cannot_hold_a_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LogUnavailableError, match="not a directory"):
            await EmbeddedLog(path).start()


async def test_a_directory_that_cannot_be_written_to_is_refused_with_advice() -> None:
    with pytest.raises(LogUnavailableError, match="choose another directory"):
        await EmbeddedLog(Path("/proc/tidegate")).start()


async def test_a_log_that_failed_to_start_holds_no_lock(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("in the way of the database")
    with pytest.raises(LogFailedError):
        await EmbeddedLog(tmp_path).start()
    (tmp_path / "log").unlink()
    log = EmbeddedLog(tmp_path)
    await log.start()
    await log.stop()

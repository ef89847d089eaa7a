"""The embedded log after kill -9: every acknowledged transaction is there, and each one that is there is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.faults.embedded_owner import OPTIONS, check
from tidegate.logs.embedded import EmbeddedLog

ROOT = Path(__file__).parents[2]


def run_owner(directory: Path, *, faults: str = "", kill_after: float | None = None) -> int:
    """Run an owner until it dies. Returns the last transaction that it had acknowledged."""
    environment = os.environ | {"TIDEGATE_FAULTS": faults, "TIDEGATE_FAULTS_LOG": str(directory / "faults")}
    command = [sys.executable, "-m", "tests.faults.embedded_owner", str(directory / "data")]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        acknowledged = 0
        for line in owner.stdout:
            if line == b"started\n" and kill_after is not None:
                threading.Timer(kill_after, owner.kill).start()
            elif line.startswith(b"ack ") and line.endswith(b"\n"):
                acknowledged = int(line[4:])
    assert owner.returncode == -signal.SIGKILL
    return acknowledged


async def check_after(directory: Path, acknowledged: int) -> int:
    log = EmbeddedLog(directory / "data", options=OPTIONS)
    await log.start()
    try:
        return await check(log, acknowledged)
    finally:
        await log.stop()


@pytest.mark.parametrize("point", ["log.written", "log.cleaning", "log.cleaned"])
async def test_no_acknowledged_append_is_lost_when_the_owner_is_killed_at(tmp_path: Path, point: str) -> None:
    last = 0
    for visit in (1, 2, 7, 40, 41):
        acknowledged = run_owner(tmp_path, faults=f"{point}:kill@{visit}")
        last = await check_after(tmp_path, max(acknowledged, last))
    strikes = (tmp_path / "faults").read_text().splitlines()
    assert strikes == [f"{point}:kill@{visit}" for visit in (1, 2, 7, 40, 41)]
    assert last > 40


async def test_no_acknowledged_append_is_lost_when_the_owner_is_killed_at_any_time(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    last = 0
    for _ in range(8):
        acknowledged = run_owner(tmp_path, kill_after=chance.uniform(0.01, 0.4))
        last = await check_after(tmp_path, max(acknowledged, last))
    assert last > 50

"""`make run` as a person meets it: it ends with a check, survives kill -9, and does not share its directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 60


class Run:
    """The example in a process of its own."""

    def __init__(self, data: Path, *options: str) -> None:
        command = [sys.executable, "-m", "examples.tinder_match", "--data", str(data), *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []

    def until(self, pattern: str) -> str:
        """Read its lines up to the first that looks like this."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.lines.append(text.rstrip())
            if re.search(pattern, text):
                return self.lines[-1]
        raise AssertionError(f"it never said {pattern!r}, only:\n" + "\n".join(self.lines))

    def end(self, number: signal.Signals | None = None) -> tuple[int, str]:
        """Its exit code and its last line."""
        if number is not None:
            self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=PATIENCE)
        self.lines += output.splitlines()
        return self.process.returncode, self.lines[-1] if self.lines else ""


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
        run.process.communicate()


def number_in(text: str, before: str) -> int:
    found = re.search(rf"{before} ([\d,]+)|([\d,]+) {before}", text)
    assert found is not None, text
    return int((found[1] or found[2]).replace(",", ""))


def test_a_run_ends_with_matches_and_no_differences(tmp_path: Path) -> None:
    code, last = Run(tmp_path, "--seconds", "3").end()
    assert re.fullmatch(r"[\d,]+ matches, 0 differences", last)
    assert number_in(last, "matches") > 0
    assert code == 0


def test_nothing_is_lost_or_doubled_by_kill_9(tmp_path: Path, runs: list[Run]) -> None:
    seen = 0
    for seed in range(3):
        runs.append(Run(tmp_path, "--seed", str(seed), "--rate", "1000"))
        seen = number_in(runs[-1].until(r"matches [1-9]"), "likes")
        time.sleep(0.1 * seed)  # in other places of a commit
        assert runs[-1].end(signal.SIGKILL)[0] == -signal.SIGKILL
    runs.append(Run(tmp_path, "--seconds", "1"))
    total = number_in(runs[-1].until("Checking all"), "all")
    code, last = runs[-1].end()
    assert re.fullmatch(r"[\d,]+ matches, 0 differences", last)
    assert code == 0
    assert total > seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_in_order_when_asked(tmp_path: Path, runs: list[Run], number: signal.Signals) -> None:
    runs.append(Run(tmp_path))
    runs[0].until("matches")
    code, last = runs[0].end(number)
    assert last.endswith("matches, 0 differences")
    assert code == 0


def test_a_second_one_on_the_same_directory_is_refused_in_one_message(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(Run(tmp_path))
    runs[0].until("matches")
    runs.append(Run(tmp_path, "--seconds", "1"))
    code, last = runs[1].end()
    assert code == 1
    assert len(runs[1].lines) == 1
    assert str(runs[0].process.pid) in last
    assert runs[0].end(signal.SIGINT)[0] == 0


def test_a_difference_is_reported_as_a_failure(tmp_path: Path, runs: list[Run]) -> None:
    runs.append(Run(tmp_path))
    runs[0].until("matches")
    forged = '{"pair": "Eve|Mallory", "first": "Eve", "second": "Mallory", "at": 2}\n'
    send = [sys.executable, "-c", "from tidegate_app.cli import main; main()", "send", "examples.tinder_match:app"]
    subprocess.run(
        [*send, "matches", "--data", str(tmp_path)], input=forged, text=True, check=True, cwd=ROOT, timeout=PATIENCE
    )
    code, last = runs[0].end(signal.SIGINT)
    assert last.endswith(" matches, 1 difference")
    assert "  matches of Eve|Mallory: expected none, found Eve then Mallory at 2" in runs[0].lines
    assert code == 1

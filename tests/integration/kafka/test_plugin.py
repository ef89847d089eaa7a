"""The fixtures, in runs of pytest of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import without_java
from tidegate.jvm.file_lock import is_locked, wait_until_free
from tidegate_app.kafka.plugin import SharedKafka

CONFTEST = 'pytest_plugins = ("tidegate_app.kafka.plugin",)\n'

SHARED = """
import os, pathlib, pytest
from tidegate_app.kafka.probe import answers

@pytest.mark.parametrize("number", range(8))
def test_shared(kafka, number, worker_id, request):
    assert answers(kafka.address)
    place = pathlib.Path(os.environ["PLACE"])
    from tidegate_app.kafka.plugin import _RUN
    (place / f"{worker_id}-{number}").write_text(f"{kafka.url} {request.config.stash[_RUN].directory}")
    while len({path.name[:3] for path in place.iterdir()}) < 2:  # both processes have been here
        pass
"""

WAITING = """
import os, pathlib, time
from tidegate_app.kafka.plugin import _RUN

def test_waiting(kafka, request):
    told = pathlib.Path(os.environ["PLACE"]) / "run"
    told.with_suffix(".new").write_text(request.config.stash[_RUN].directory)
    told.with_suffix(".new").replace(told)
    time.sleep(600)
"""

NEEDING = """
def test_needing(kafka):
    pass
"""


class Inner:
    """A run of pytest in a directory."""

    def __init__(self, directory: Path, test: str) -> None:
        self.place = directory / "place"
        self.temporary = directory / "temporary"
        self.place.mkdir()
        self.temporary.mkdir()
        (directory / "conftest.py").write_text(CONFTEST)
        (directory / "test_inner.py").write_text(test)
        (directory / "pytest.ini").write_text("[pytest]\n")
        self._directory = directory

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TIDEGATE"))}
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=self._directory,
            env={**clean, "PLACE": str(self.place), "TMPDIR": str(self.temporary), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        with self.start(*arguments, **environment) as process:
            output, _ = process.communicate()
        assert process.returncode == code, output
        return output


def test_all_processes_of_a_test_run_share_one_broker_that_ends_with_the_run(tmp_path: Path) -> None:
    inner = Inner(tmp_path, SHARED)

    assert "8 passed" in inner.run("-n", "2")

    told = {path.read_text() for path in inner.place.iterdir()}
    assert {path.name[:3] for path in inner.place.iterdir()} == {"gw0", "gw1"}
    assert len(told) == 1
    _, run = told.pop().split()
    assert Path(run).parent == inner.temporary
    assert not Path(run).exists()


def test_the_broker_ends_with_a_killed_test_run_and_a_later_run_cleans_up(tmp_path: Path) -> None:
    inner = Inner(tmp_path, WAITING)
    with inner.start("-n", "2") as process:
        told = inner.place / "run"
        while not told.exists():
            assert process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.05)
        run = Path(told.read_text())
        lock = run / "broker" / "broker.lock"
        assert is_locked(lock)

        process.send_signal(signal.SIGKILL)

        assert wait_until_free(lock, 20)

    assert "1 test collected" in inner.run("--collect-only")
    assert run.exists()
    os.utime(run, (0, 0))
    assert "1 test collected" in inner.run("--collect-only")
    assert not run.exists()


@pytest.mark.parametrize(
    ("external", "reason"),
    [
        ("", "Kafka needs Java"),
        ("kafka://127.0.0.1:1", "TIDEGATE_TEST_BROKER=kafka://127.0.0.1:1 does not respond"),
    ],
)
def test_without_a_broker_tests_fail_and_are_not_skipped(tmp_path: Path, external: str, reason: str) -> None:
    environment = {"TIDEGATE_TEST_BROKER": external} if external else without_java(tmp_path)
    output = Inner(tmp_path, NEEDING).run(code=1, **environment)

    assert reason in output
    assert "1 error" in output
    assert "skipped" not in output


def test_an_external_broker_is_used_instead(tmp_path: Path, kafka: SharedKafka) -> None:
    test = f"def test_external(kafka):\n    assert kafka.url == {kafka.url!r}\n"

    output = Inner(tmp_path, test).run(code=0, TIDEGATE_TEST_BROKER=kafka.url, **without_java(tmp_path))

    assert "1 passed" in output

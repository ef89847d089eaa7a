"""`faust -A module worker` starts the same worker, with what Faust itself offers beside the services."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import Project, lines

MODULE = '''
from tidegate import App, Context, ValueState

app = App("beats")
beats = app.topic("beats", value_type=str, key=lambda beat: "all")
counts = app.topic("counts", value_type=int)


@app.process(beats, to=counts)
async def counter(ctx: Context, beat: str, count: ValueState[int | None]) -> None:
    if beat == "bad":
        raise ValueError("out of rhythm")
    count.value = (count.value or 0) + 1
    ctx.emit(count.value)


@app.timer(interval=0.1)
async def beat() -> None:
    await beats.send(value="tick")


@app.crontab("* * * * *")
async def minute() -> None:
    print("crontab ran", flush=True)


@app.command()
async def hum() -> None:
    """Hums."""
    print("hum hum", flush=True)
'''


@pytest.fixture
def faust_project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, drum=MODULE)
    yield made
    made.close()


def test_it_starts_the_services_and_faust_timers_and_stops_with_everything_committed(faust_project: Project) -> None:
    project = faust_project
    worker = project.start("-A", "drum", "worker", "-l", "info", program="faust")
    assert "recovered 0 keys, replayed 0 records" in worker.wait_for("recovered")
    found = project.json("tail", "drum.py", "counts", "--from-beginning", "--count", "5")
    assert [line["value"] for line in found] == [1, 2, 3, 4, 5]

    assert worker.stop(signal.SIGTERM) == 0

    (total,) = project.json("state", "get", "drum.py", "counter", "count", "all")
    emitted = [line["value"] for line in project.json("tail", "drum.py", "counts", "--until-end")]
    assert emitted == list(range(1, total + 1))
    assert "Traceback" not in worker.output
    assert not re.search(r"6066.*(started|Serving)", worker.output)


def test_a_failed_service_ends_it_with_another_code(faust_project: Project) -> None:
    project = faust_project
    project.run("send", "drum.py", "beats", stdin=lines(["bad"]))

    worker = project.start("-A", "drum", "worker", "-l", "info", program="faust")

    assert worker.wait() != 0
    assert "out of rhythm" in worker.output


def test_commands_of_the_app_work(faust_project: Project) -> None:
    """With the program itself: it looks for the app's own commands when it is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "faust", "-A", "drum", "hum"],
        cwd=faust_project.directory,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "hum hum" in done.stdout


def test_a_second_worker_is_refused(faust_project: Project) -> None:
    project = faust_project
    with project.worker("drum.py"):
        second = project.start("-A", "drum", "worker", program="faust")

        assert second.wait() != 0
        assert "is held by process" in second.output


@pytest.mark.slow
def test_crontabs_run(faust_project: Project) -> None:
    worker = faust_project.start("-A", "drum", "worker", "-l", "info", program="faust")
    worker.wait_for("crontab ran", seconds=75)
    assert worker.stop() == 0

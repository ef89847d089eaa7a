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
    await beats.send("tick")


@app.crontab("* * * * *")
async def minute() -> None:
    print("crontab ran", flush=True)


@app.command()
async def hum() -> None:
    """Hums."""
    print("hum hum", flush=True)
'''


STAGE = """
import faust

from tidegate import App, Context

app = other = App("stage")
words = app.topic("words", value_type=str)
heard = app.faust.Table("heard", default=int)


@app.agent(words)
async def listen(stream: faust.StreamT[str]) -> None:
    async for word in stream:
        heard[word] += 1


if __name__ == "__main__":
    app.faust.main()
"""

PLAIN = """
from tidegate import App, Context, ValueState

app = App("plain", partitions=1)
words = app.topic("words", value_type=str, key=lambda word: word)
counts = app.topic("counts", value_type=int)


@app.process(words, to=counts)
async def count(ctx: Context, word: str, seen: ValueState[int | None]) -> None:
    seen.value = (seen.value or 0) + 1
    ctx.emit(seen.value)
"""


@pytest.fixture
def faust_project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, drum=MODULE)
    yield made
    made.close()


def test_services_and_faust_timers_start_and_a_stop_commits_everything(faust_project: Project) -> None:
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


def test_a_failed_service_ends_the_command_with_a_nonzero_code(faust_project: Project) -> None:
    project = faust_project
    project.run("send", "drum.py", "beats", stdin=lines(["bad"]))

    worker = project.start("-A", "drum", "worker", "-l", "info", program="faust")

    assert worker.wait() != 0
    assert "out of rhythm" in worker.output


def faust(project: Project, *arguments: str) -> str:
    """The program itself: it looks for the app's own commands when it is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "faust", *arguments], cwd=project.directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_of_the_app_work(faust_project: Project) -> None:
    assert "hum hum" in faust(faust_project, "-A", "drum", "hum")
    assert "Hums." in faust(faust_project, "-A", "drum", "--help")


@pytest.mark.parametrize("name", ["stage", "stage:app", "stage.app", "stage:other"])
def test_fausts_own_commands_find_the_app_by_module_or_name(faust_project: Project, name: str) -> None:
    (faust_project.directory / "stage.py").write_text(STAGE)

    assert re.search(r"listen +\| words", faust(faust_project, "-A", name, "agents"))


def test_fausts_commands_show_the_tables(faust_project: Project) -> None:
    (faust_project.directory / "stage.py").write_text(STAGE)
    assert "heard" in faust(faust_project, "-A", "stage", "tables")


def test_a_users_program_is_fausts_command_line(faust_project: Project) -> None:
    (faust_project.directory / "stage.py").write_text(STAGE)
    done = subprocess.run(
        [sys.executable, "stage.py", "agents"],
        cwd=faust_project.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "listen" in done.stdout


def test_an_app_of_services_alone_is_started_by_faust_too(faust_project: Project) -> None:
    (faust_project.directory / "plain.py").write_text(PLAIN)
    worker = faust_project.start("-A", "plain", "worker", "-l", "info", program="faust")
    worker.wait_for("recovered")
    faust_project.run("send", "plain.py", "words", stdin=lines(["a"]))
    (line,) = faust_project.json("tail", "plain.py", "counts", "--from-beginning", "--count", "1")
    assert line["value"] == 1
    assert worker.stop(signal.SIGTERM) == 0, worker.output


def test_without_faust_in_the_app_no_command_imports_it(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    script = (
        "import sys\n"
        "from tidegate_app.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "found = sorted({'faust', 'mode', 'tidegate.faust_host'} & set(sys.modules))\n"
        "assert not found, found\n"
    )
    for words in (
        ("send", "plain.py", "words"),
        ("worker", "plain.py", "--until-end", "--api", "127.0.0.1:0"),
        ("state", "get", "plain.py", "count", "seen", "a"),
        ("tail", "plain.py", "counts", "--until-end"),
        ("topics", "plain.py"),
        ("services", "plain.py"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, *words],
            cwd=tmp_path,
            input='"a"\n',
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (words, done.stderr)


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

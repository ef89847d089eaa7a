"""A worker as a process: what it says, how it ends, and that nothing is lost or counted twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import Project, Running, lines


def greet(project: Project, names: Iterable[str]) -> None:
    project.run("send", "hello.py", "greetings", stdin=lines({"name": name} for name in names))


def seen(project: Project) -> dict[str, int]:
    return {line["key"]: line["value"] for line in project.json("state", "list", "hello.py", "greeter", "seen")}


def test_a_bounded_run_handles_all_records_fires_timers_commits_and_exits_with_0(project: Project) -> None:
    greet(project, ["ann", "bob", "ann"])

    done = project.run("worker", "hello.py", "--until-end")

    assert "recovered 0 keys, replayed 0 records" in done.stderr
    found = project.json("tail", "hello.py", "counts", "--until-end")
    emitted = [(line["key"], line["value"]["count"]) for line in found]
    assert sorted(emitted) == [("ann", -2), ("ann", 1), ("ann", 2), ("bob", -1), ("bob", 1)]
    assert seen(project) == {"ann": 2, "bob": 1}

    project.run("worker", "hello.py", "--until-end")
    assert len(project.json("tail", "hello.py", "counts", "--until-end")) == 5


def test_after_kill_9_the_first_lines_report_the_recovery(project: Project) -> None:
    with project.worker() as worker:
        greet(project, [f"n{number}" for number in range(20)] * 2)
        project.json("tail", "hello.py", "counts", "--from-beginning", "--count", "40")
        worker.stop(signal.SIGKILL)

    with project.worker() as again:
        first = again.output.splitlines()[:2]
        assert first[0].endswith("greeter × 4, pad.notes.by-key × 4, pad × 4")
        assert "recovered 20 keys, replayed " in first[1]
        replayed = int(first[1].split("replayed ")[1].split()[0].replace(",", ""))
        assert replayed >= 40  # a change of state and a timer for each key
        assert " ms (12 tasks)" in first[1]
        assert set(seen(project).values()) == {2}


def test_a_worker_commits_everything_on_sigterm_and_sigint_and_exits_with_0(project: Project) -> None:
    for number, (signal_, expected) in enumerate([(signal.SIGTERM, 1), (signal.SIGINT, 2)]):
        with project.worker() as worker:
            greet(project, ["ann"])
            project.json("tail", "hello.py", "counts", "--from-beginning", "--count", str(number + 1))
            assert worker.stop(signal_) == 0
            assert "stopped: everything that was handled is committed" in worker.output
        assert seen(project) == {"ann": expected}


def test_a_second_worker_is_refused_and_the_first_continues(project: Project) -> None:
    with project.worker() as worker:
        done = project.run("worker", "hello.py", code=1)

        assert done.stderr.startswith("Error: .tidegate/hello is held by process ")
        assert f"process {worker.pid} " in done.stderr
        assert "--data DIR" in done.stderr
        assert len(done.stderr.splitlines()) <= 5
        assert worker.alive


def test_a_failed_handler_stops_the_worker_with_its_error_on_one_screen(project: Project) -> None:
    greet(project, ["ann"])
    project.run("send", "hello.py", "greetings", stdin=lines([{"name": "bob", "text": "bad"}]))

    done = project.run("worker", "hello.py", code=1)

    error = done.stderr[done.stderr.index("Error:") :]
    assert "service 'greeter' stopped at greetings[" in error
    assert "ValueError: I do not like this greeting" in error
    assert 'hello.py", line ' in error
    assert 'raise ValueError("I do not like this greeting")' in error
    assert "DEAD_LETTER" in error
    assert len(error.splitlines()) < 24
    assert "tidegate/engine/" not in error
    assert done.stderr.count("I do not like this greeting") == 2, "once in the message, once in the traceback"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_gives_a_clear_error(project: Project) -> None:
    project.directory.joinpath("locked").mkdir(mode=0o500)

    done = project.run("worker", "hello.py", "--data", "locked", code=1)

    assert "locked/hello cannot hold a log: Permission denied" in done.stderr


@pytest.mark.parametrize("data", ["hello.py", "/proc/nowhere"])
def test_an_impossible_directory_gives_a_clear_error(project: Project, data: str) -> None:
    done = project.run("worker", "hello.py", "--data", data, code=1)

    assert f"Error: {data}/hello cannot hold a log" in done.stderr
    assert len(done.stderr.splitlines()) <= 3


def test_a_flag_overrides_the_environment_which_overrides_the_app(project: Project) -> None:
    project.run("send", "hello.py", "greetings", stdin=lines([{"name": "ann"}]), TIDEGATE_DATA="by-environment")
    assert (project.directory / "by-environment" / "hello").is_dir()

    project.run("send", "hello.py", "greetings", "--data", "by-flag", TIDEGATE_DATA="by-environment-too")
    assert (project.directory / "by-flag" / "hello").is_dir()
    assert not (project.directory / "by-environment-too").exists()


def test_a_misspelt_variable_is_reported_when_a_worker_starts(project: Project) -> None:
    done = project.run("worker", "hello.py", "--until-end", TIDEGATE_COMIT_INTERVAL="1")

    warnings = [line for line in done.stderr.splitlines() if "TIDEGATE_COMIT_INTERVAL" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("Warning")
    assert "did you mean TIDEGATE_COMMIT_INTERVAL?" in warnings[0]


def test_a_partition_count_set_too_late_is_reported(project: Project) -> None:
    def told(*flags: str, **environment: Any) -> list[str]:
        done = project.run("worker", "hello.py", "--until-end", *flags, **environment)
        return [line for line in done.stderr.splitlines() if "partitions=" in line]

    assert told("--partitions", "2") == []
    assert told("--partitions", "2") == []
    assert told() == []
    for said in (told("--partitions", "3"), told(TIDEGATE_PARTITIONS="3")):
        assert len(said) == 1
        assert "partitions=3 is for topics that do not exist yet" in said[0]
        assert "greeter has 2 tasks" in said[0]
        assert "with a savepoint and restore it with --partitions 3" in said[0]

    with project.worker():
        project.run("savepoint", "create", "hello.py", "three", "--stop")
    project.run("savepoint", "restore", "hello.py", "three", "--partitions", "3")
    assert told("--partitions", "3") == []


def test_metrics_are_served(project: Project) -> None:
    with project.worker("hello.py", "--metrics", "127.0.0.1:19464"):
        greet(project, ["ann"])
        project.json("tail", "hello.py", "counts", "--from-beginning", "--count", "1")
        deadline = time.monotonic() + 20
        text = ""
        while 'tidegate_handled_total{service="greeter"' not in text:
            assert time.monotonic() < deadline
            with urllib.request.urlopen("http://127.0.0.1:19464/metrics", timeout=10) as answer:
                text = answer.read().decode()

    done = project.run("worker", "hello.py", "--metrics", "192.0.2.1:1", code=1)
    assert "metrics cannot be served at 192.0.2.1:1" in done.stderr


def test_two_apps_share_a_directory_without_interfering(project: Project) -> None:
    other = (project.directory / "hello.py").read_text().replace('App("hello")', 'App("other")')
    (project.directory / "other.py").write_text(other)
    with project.worker("hello.py"), project.worker("other.py"):
        greet(project, ["ann"])
        project.json("tail", "hello.py", "counts", "--from-beginning", "--count", "1")
        assert project.json("state", "list", "other.py", "greeter", "seen") == []


def test_a_stopping_worker_waits_for_its_suspended_handlers(project: Project) -> None:
    (project.directory / "slow.py").write_text("""
import asyncio
from tidegate import App, Context, ValueState

app = App("slow")
orders = app.topic("orders", value_type=str)

@app.process(orders)
async def waiter(ctx: Context, order: str, done: ValueState[str | None]) -> None:
    print("begun", flush=True)
    await asyncio.sleep(1.5)
    done.value = order
""")
    with project.worker("slow.py") as worker:
        project.run("send", "slow.py", "orders", "--records", stdin=lines([{"key": "k", "value": "tea"}]))
        worker.wait_for("begun")
        assert worker.stop() == 0

    assert project.json("state", "get", "slow.py", "waiter", "done", "k") == ["tea"]


def test_an_error_in_a_background_task_of_a_handler_is_shown(project: Project) -> None:
    (project.directory / "hasty.py").write_text("""
import asyncio
from tidegate import App, Context, ValueState

app = App("hasty")
orders = app.topic("orders", value_type=str, key=str)

@app.process(orders)
async def waiter(ctx: Context, order: str, done: ValueState[str | None]) -> None:
    async def later() -> None:
        await asyncio.sleep(0)
        done.value = order

    asyncio.create_task(later())
""")
    project.run("send", "hasty.py", "orders", stdin=lines(["tea"]))
    done = project.run("worker", "hasty.py", "--until-end")

    assert done.stderr.count("HandlerOverError: a context and its states are valid only while their handler runs") == 1
    assert "hasty.py" in done.stderr


def test_a_send_continues_through_a_worker_that_starts(project: Project) -> None:
    big = project.directory / "big.jsonl"
    count = 100_000
    big.write_text(lines({"name": f"n{number % 100}", "text": "x" * 50} for number in range(count)))
    sending = project.start("send", "hello.py", "greetings", stdin=big)
    deadline = time.monotonic() + 30
    while not (project.data / "hello" / "log" / "CURRENT").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with project.worker():
        assert sending.wait() == 0
        deadline = time.monotonic() + 60
        while sum(seen(project).values()) != count:
            assert time.monotonic() < deadline, seen(project)


def begin_sending(project: Project, count: int) -> Running:
    """Start a send, and wait until some of it has arrived."""
    big = project.directory / "big.jsonl"
    big.write_text(lines({"name": f"n{number % 100}", "text": "x" * 50} for number in range(count)))
    sending = project.start("send", "hello.py", "greetings", stdin=big)
    project.json("tail", "hello.py", "greetings", "--from-beginning", "--count", "1")
    return sending


def stored(project: Project) -> int:
    rows = {row["name"]: row for row in json.loads(project.run("topics", "hello.py", "--json").stdout)}
    return int(rows["greetings"]["records"])


def test_a_send_continues_when_its_worker_stops(project: Project) -> None:
    count = 60_000
    with project.worker() as worker:
        sending = begin_sending(project, count)
        assert worker.stop() == 0
        assert sending.wait() == 0, sending.output

    assert stored(project) == count


def test_a_send_reports_what_was_acknowledged_when_its_worker_is_killed(project: Project) -> None:
    count = 60_000
    with project.worker() as worker:
        sending = begin_sending(project, count)
        worker.stop(signal.SIGKILL)
        code = sending.wait()

    found = stored(project)
    if code == 0:  # it was killed between two batches: nothing was on its way
        assert found == count
        return
    certain = int(
        re.findall(r"Sent ([0-9,]+) records? to greetings before the error", sending.output)[0].replace(",", "")
    )
    uncertain = int(re.findall(r"the last ([0-9,]+) records?", sending.output)[0].replace(",", ""))
    assert found in (certain, certain + uncertain)
    assert "check with 'tidegate tail' before you send them again" in sending.output


def test_new_creates_a_project_that_runs(tmp_path: Path) -> None:
    """With the program itself, as a user starts it."""
    shop = tmp_path / "shop"
    _tidegate("new", "shop", cwd=tmp_path)
    clicks = (shop / "clicks.jsonl").read_text()

    _tidegate("send", "app.py", "clicks", cwd=shop, stdin=clicks)
    _tidegate("worker", "app.py", "--until-end", cwd=shop)

    found = [json.loads(line) for line in _tidegate("state", "list", "app.py", "counter", "count", cwd=shop)]
    users = [json.loads(line)["user"] for line in clicks.splitlines()]
    assert {line["key"]: line["value"] for line in found} == {user: users.count(user) for user in users}
    subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=shop, check=True, capture_output=True)


def _tidegate(*arguments: str, cwd: Path, stdin: str = "") -> list[str]:
    program = Path(sys.executable).with_name("tidegate")
    done = subprocess.run([program, *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()

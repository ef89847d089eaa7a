"""A worker of several processes: they share the tasks, end together, and come back when they are killed."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.commands import Project, Running, lines
from tests.integration.conftest import HELLO
from tests.integration.kafka.projects import KafkaProject, eventually
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.plugin import SharedKafka

SLOW = """
import asyncio
from tidegate import App, Context, ValueState

app = App("{app}", drain_seconds=60)
orders = app.topic("{app}-orders", value_type=str)

@app.process(orders)
async def waiter(ctx: Context, order: str, done: ValueState[str | None]) -> None:
    print("begun", flush=True)
    await asyncio.sleep(60)
"""


@pytest.fixture
def project(tmp_path: Path, kafka: SharedKafka) -> Iterator[KafkaProject]:
    made = KafkaProject(tmp_path, kafka.url)
    yield made
    made.close()


def children(worker: Running) -> list[psutil.Process]:
    return [child for child in psutil.Process(worker.pid).children() if "--child=" in " ".join(child.cmdline())]


def start(project: KafkaProject, processes: int, *arguments: str) -> Running:
    """A worker whose processes all have their tasks."""
    worker = project.start("worker", "hello.py", "--processes", str(processes), *arguments)
    for number in range(processes):
        worker.wait_for(f"[{number}] recovered")
    return worker


def test_sigterm_stops_all_with_0_and_everything_committed(project: KafkaProject) -> None:
    worker = start(project, 2)
    names = [f"n{number}" for number in range(30)]
    project.greet(names)
    project.counted(30)
    pids = [child.pid for child in children(worker)]
    assert len(pids) == 2
    shown = eventually(
        lambda: text if (text := project.run("services", "hello.py").stderr).count("process") == 2 else ""
    )
    assert all(f"process {pid} on " in shown for pid in pids)

    assert worker.stop(signal.SIGTERM) == 0

    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert all(f"[{number}] stopped: everything that was handled is committed" in worker.output for number in (0, 1))
    assert "all 2 processes have ended" in worker.output
    assert project.seen() == dict.fromkeys(names, 1)


def test_a_killed_process_is_restarted_without_data_loss(project: KafkaProject) -> None:
    count, names = 30_000, [f"n{number}" for number in range(300)]
    worker = start(project, 2)
    big = project.directory / "big.jsonl"
    big.write_text(lines({"name": names[number % len(names)]} for number in range(count)))
    sending = project.start("send", "hello.py", project.topic("greetings"), stdin=big)
    project.counted(500)
    victim = children(worker)[0]
    victim.kill()
    worker.wait_for("was ended by SIGKILL; restarting it in 0.5 s")

    assert sending.wait() == 0, sending.output
    counted = Counter(project.counted(count))
    assert set(counted.values()) == {1}  # each count of each name once
    assert set(counted) == {(name, number + 1) for name in names for number in range(count // len(names))}
    again = eventually(lambda: found if len(found := children(worker)) == 2 else None)
    assert victim.pid not in [child.pid for child in again]
    eventually(lambda: len(re.findall(r"\[0\] recovered|\[1\] recovered", worker.output)) >= 3)
    assert worker.stop() == 0
    assert project.seen() == dict.fromkeys(names, count // len(names))
    assert len(project.all_counted()) == count


def test_a_failing_handler_stops_all_and_its_error_is_shown_once(project: KafkaProject) -> None:
    worker = start(project, 2)
    project.greet(["ann"], text="bad")

    assert worker.wait() == 1

    assert worker.output.count("ValueError: I do not like this greeting") == 1
    assert worker.output.count("Error: service 'greeter' stopped at") == 1
    assert "restarting it" not in worker.output


def test_a_bounded_run_of_several_processes_ends(project: KafkaProject) -> None:
    names = [f"n{number}" for number in range(50)]
    project.greet(names * 2)
    project.run("send", "hello.py", project.topic("notes"), stdin=lines({"who": number} for number in range(20)))

    done = project.run("worker", "hello.py", "--processes", "3", "--until-end")

    assert "all 3 processes have ended" in done.stderr
    assert project.seen() == dict.fromkeys(names, 2)
    assert sorted(project.all_counted()) == sorted((name, count) for name in names for count in (-2, 1, 2))
    assert len(project.json("state", "list", "hello.py", "pad", "last")) == 20


def test_stopping_with_a_savepoint_ends_all_processes_without_restarts(project: KafkaProject) -> None:
    worker = start(project, 2)
    project.greet(["ann"])
    project.counted(1)

    project.run("savepoint", "create", "hello.py", "final", "--stop")

    assert worker.wait() == 0, worker.output
    assert "restarting it" not in worker.output
    assert "all 2 processes have ended" in worker.output


def test_the_other_processes_stop_when_the_first_is_killed(project: KafkaProject) -> None:
    worker = start(project, 2)
    orphans = children(worker)
    project.greet(["ann"])
    project.counted(1)

    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()

    gone, alive = psutil.wait_procs(orphans, timeout=40)
    assert (len(gone), alive) == (2, [])
    assert worker.output.count("the process that started this one has ended: stopping") == 2
    assert worker.output.count("stopped: everything that was handled is committed") == 2


def test_a_second_signal_stops_immediately(project: KafkaProject) -> None:
    app = f"{project.app}-slow"
    (project.directory / "slow.py").write_text(SLOW.format(app=app))
    worker = project.start("worker", "slow.py", "--processes", "2")
    project.run("send", "slow.py", f"{app}-orders", "--records", stdin=lines([{"key": "k", "value": "tea"}]))
    worker.wait_for("begun")
    orphans = children(worker)
    os.kill(worker.pid, signal.SIGTERM)
    worker.wait_for("SIGTERM: stopping; once more stops at once")

    assert worker.stop(signal.SIGTERM) == 128 + signal.SIGTERM

    gone, alive = psutil.wait_procs(orphans, timeout=10)
    assert (len(gone), alive) == (2, [])


def test_each_process_has_its_own_port_for_metrics_and_its_own_instance(project: KafkaProject) -> None:
    port = free_port()
    worker = start(project, 2, "--metrics", f"127.0.0.1:{port}", "--kafka-instance", "pod")
    for number in range(2):
        with urllib.request.urlopen(f"http://127.0.0.1:{port + number}/metrics", timeout=10) as answer:
            assert 'tidegate_commits_total{service="greeter"' in answer.read().decode()
    commands = sorted(" ".join(child.cmdline()) for child in children(worker))
    assert ["--kafka-instance=pod-0" in commands[0], "--kafka-instance=pod-1" in commands[1]] == [True, True]
    assert worker.stop() == 0


def test_several_processes_need_a_broker(tmp_path: Path) -> None:
    project = Project(tmp_path, hello=HELLO)

    done = project.run("worker", "hello.py", "--processes", "2", code=1)

    assert "2 processes cannot share an embedded log: one process owns it" in done.stderr
    assert "--broker kafka://HOST:PORT" in done.stderr
    assert not project.data.exists()

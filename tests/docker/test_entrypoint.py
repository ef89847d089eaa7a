"""The entrypoint, run outside of a container as a user without rights: it starts a worker, which stops in order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.docker.files import DOCKER, ROOT

pytestmark = pytest.mark.timeout(400)

NOBODY = 65534
SECONDS = 120.0
SHOP = """
import asyncio
from typing import Annotated

from tidegate import App, Context, Default, ValueState

app = App("shop")
orders = app.topic("orders", value_type=int, key=lambda order: f"k{order % 3}", partitions=2)
sums = app.topic("sums", value_type=int, partitions=2)


@app.process(orders, to=sums)
async def adder(ctx: Context, order: int, total: Annotated[ValueState[int], Default(0)]) -> None:
    if order == 1000:
        print("waiting", flush=True)
        await asyncio.sleep(1.5)
    total.value += order
    ctx.emit(total.value)
"""


def python_for_all() -> str:
    """An interpreter that every user may run: that of these tests may be in a home directory."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), *(Path(place) / version for place in ("/usr/local/bin", "/usr/bin"))):
        if path.exists() and all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents)):
            return str(path)
    pytest.skip(f"no {version} here that any user may run")


class Container:
    """What an engine gives a process, as far as that is possible without one: a user, a few variables, a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.data = directory, directory / "data"
        self.data.mkdir()
        (directory / "shop.py").write_text(SHOP)
        self._install()
        self._processes: list[subprocess.Popen[str]] = []
        self.user = NOBODY if os.getuid() == 0 else os.getuid()
        for path in (directory, self.data):
            os.chown(path, self.user, -1)

    def _install(self) -> None:
        """`tidegate`, with what these tests are run with."""
        places = [place for place in sys.path if place.endswith("-packages") or Path(place).is_relative_to(ROOT)]
        command = self.directory / "bin" / "tidegate"
        command.parent.mkdir()
        lines = ["import sys", f"sys.path += {places!r}", "from tidegate_app.cli import main", "main()"]
        command.write_text("\n".join([f"#!{python_for_all()}", *lines, ""]))
        command.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.directory}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(self.directory),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.data),
            "TIDEGATE_APP": "shop:app",
            "TIDEGATE_DATA": str(self.data),
        }

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any) -> Any:
        user: dict[str, Any] = {}
        if os.getuid() == 0:
            user = {"user": self.user, "group": self.user, "extra_groups": []}
        with (self.directory / "output").open("a") as output:
            process = subprocess.Popen(
                [DOCKER / "entrypoint.sh", *arguments],
                cwd=self.directory,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                **{**user, **options},
            )
        self._processes.append(process)
        return process

    def run(self, *arguments: str, given: str = "", **options: Any) -> tuple[int, str]:
        """Run a command to its end; return its exit code and output."""
        before = len(self.output)
        process = self.start(*arguments, **options)
        process.communicate(given, timeout=SECONDS)
        return process.returncode, self.output[before:]

    @property
    def output(self) -> str:
        path = self.directory / "output"
        return path.read_text() if path.exists() else ""

    def wait_for(self, text: str, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in self.output:
            assert process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def sums(self) -> list[int]:
        code, output = self.run("tidegate", "tail", "shop:app", "sums", "--from-beginning", "--until-end")
        assert code == 0, output
        return sorted(json.loads(line)["value"] for line in output.splitlines() if line.startswith("{"))

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(10)
            if process.stdin is not None:
                process.stdin.close()


@pytest.fixture
def container() -> Iterator[Container]:
    directory = Path(tempfile.mkdtemp(prefix="tidegate-container-"))  # pytest's own are closed to other users
    directory.chmod(0o755)
    made = Container(directory)
    yield made
    made.end()
    shutil.rmtree(directory, ignore_errors=True)


def test_on_sigterm_the_worker_drains_commits_leaves_and_exits_with_0(container: Container) -> None:
    worker = container.start("worker")
    container.wait_for("recovered 0 keys", worker)
    assert Path(f"/proc/{worker.pid}").stat().st_uid == container.user != 0
    code, output = container.run("tidegate", "send", "shop:app", "orders", given="1\n2\n3\n1000\n")
    assert code == 0, output
    container.wait_for("waiting", worker)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SECONDS) == 0, container.output
    assert "SIGTERM: stopping" in container.output
    assert "stopped: everything that was handled is committed" in container.output

    again = container.start("worker")
    container.wait_for("recovered 3 keys", again)
    again.send_signal(signal.SIGTERM)
    assert again.wait(SECONDS) == 0
    assert container.sums() == [1, 2, 3, 1001], "the handler that waited was let end, and committed, and nothing twice"


def test_the_health_check_reports_whether_the_worker_responds(container: Container) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    environment = {"TIDEGATE_API": f"127.0.0.1:{port}"}

    def healthy(path: str) -> bool:
        command = [sys.executable, str(DOCKER / "healthcheck.py"), path]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode == 0

    assert not healthy("/livez")
    worker = container.start("worker", environment=environment)
    container.wait_for("recovered 0 keys", worker)
    deadline = time.monotonic() + SECONDS
    while not (healthy("/livez") and healthy("/readyz")):
        assert time.monotonic() < deadline, container.output
    assert not healthy("/no-such-path")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(SECONDS) == 0, container.output
    assert not healthy("/livez")


def test_flags_go_to_the_worker_and_other_commands_are_run(container: Container) -> None:
    code, output = container.run("worker", "--no-such-flag")
    assert code == 2
    assert "--no-such-flag" in output
    assert container.run("tidegate", "--version")[0] == 0


def test_without_an_app_the_error_names_the_setting(container: Container) -> None:
    code, output = container.run("worker", environment={"TIDEGATE_APP": ""})
    assert code == 64
    assert "Set TIDEGATE_APP=package.module:app" in output


def test_a_volume_of_another_user_is_named(container: Container) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a directory that is somebody else's")
    others = container.directory / "others"
    others.mkdir(mode=0o755)
    code, output = container.run(environment={"TIDEGATE_DATA": str(others)})
    assert code == 64
    assert f"user {container.user} cannot write to {others}" in output
    assert "fsGroup" in output


def test_root_is_refused(container: Container) -> None:
    if os.getuid() != 0:
        pytest.skip("nobody here is root")
    code, output = container.run(user=0, group=0, extra_groups=[])
    assert code == 64
    assert "Start it as another user" in output

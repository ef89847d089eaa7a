"""The steps of the image's build that need no engine: both environments by hash, the wheel, and a worker from it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.files import DOCKER, ROOT
from tests.docker.test_dockerfile import stages

SECONDS = 600


def run_steps(stage: str, places: dict[str, str], source: Path) -> list[str]:
    """Every RUN of a stage, in its order, with the image's paths replaced."""
    done = []
    for name, rest in stages()[stage]:
        if name != "RUN":
            continue
        for path, place in places.items():
            rest = rest.replace(path, place)
        subprocess.run(["sh", "-ec", rest], cwd=source, check=True, timeout=SECONDS, capture_output=True)
        done.append(rest)
    return done


def context(directory: Path) -> Path:
    """What an engine is sent: the files of the repository that .dockerignore lets through."""
    kept = [line[1:].strip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in kept:
        source, target = ROOT / name, directory / name
        if source.is_dir() and name != "docker":
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return directory


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_the_build_installs_a_self_contained_worker(tmp_path: Path) -> None:
    source = context(tmp_path / "src")
    places = {
        "/opt/tidegate": str(tmp_path / "tidegate"),
        "/opt/build": str(tmp_path / "build"),
        "/wheels": str(tmp_path / "wheels"),
        "python -m venv": f"{sys.executable} -m venv",
    }
    assert len(run_steps("build", places, source)) == 4
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    names = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True)
    packages = set(re.findall(r"^(tidegate\w*)/__init__\.py", names.stdout, flags=re.MULTILINE))
    assert {"tidegate", "tidegate_api", "tidegate_app", "tidegate_services"} <= packages

    project = tmp_path / "project"
    project.mkdir()
    (project / "hello.py").write_text(
        "from tidegate import App, Context\n"
        "from tidegate_services import Counters\n"
        'app = App("hello")\n'
        'words = app.topic("words", value_type=str, key=lambda word: word)\n'
        "counters = Counters(app, topic=words)\n"
    )
    environment = {
        "PATH": f"{tmp_path}/tidegate/bin:/usr/bin:/bin",
        "TIDEGATE_APP": "hello:app",
        "TIDEGATE_DATA": str(tmp_path / "data"),
        "TIDEGATE_ALLOW_ROOT": "1" if os.getuid() == 0 else "",
    }

    def run(*command: str, given: str = "") -> str:
        done = subprocess.run(
            [DOCKER / "entrypoint.sh", *command],
            cwd=project, env=environment, input=given, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("tidegate", "send", "hello:app", "words", given='"a"\n"b"\n"a"\n')
    run("worker", "--until-end")
    assert run("tidegate", "state", "get", "hello:app", "counters", "counts", "a").strip().startswith('{"all":2')

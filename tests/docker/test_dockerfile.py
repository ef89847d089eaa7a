"""The Dockerfile, as far as it can be judged without an engine: its sources exist, and no process runs as root."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from tests.docker.files import DOCKER, ROOT


def instructions() -> list[tuple[str, str]]:
    """Each with its arguments, lines joined."""
    text = re.sub(r"\\\n\s*", " ", (DOCKER / "Dockerfile").read_text())
    found = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, rest in found]


def stages() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, rest in instructions():
        if name == "FROM":
            found[rest.rpartition(" AS ")[2]] = []
        elif found:
            found[next(reversed(found))].append((name, rest))
    return found


def test_it_is_built_in_stages_and_the_last_is_the_worker() -> None:
    assert list(stages()) == ["build", "build-spark", "base", "spark", "worker"]
    assert [rest for name, rest in instructions() if name == "FROM" and "python:" in rest] == [
        "python:${PYTHON}-slim-bookworm AS build",
        "python:${PYTHON}-slim-bookworm AS base",
    ]
    tools = [rest for name, rest in stages()["worker"] if name == "COPY"]
    assert tools == ["--from=build /opt/tidegate /opt/tidegate"], "what builds it stays behind"


def test_no_container_runs_as_root() -> None:
    assert ("USER", "10001:10001") in stages()["base"]
    assert [rest for name, rest in stages()["spark"] if name == "USER"] == ["root", "10001:10001"]
    assert "USER" not in [name for name, _ in stages()["worker"]]


def test_everything_is_installed_by_hash() -> None:
    installs = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    for command in installs:
        for install in re.findall(r"pip install[^&]*", command):
            assert "--require-hashes" in install or "--no-index" in install, install
    for name in ("runtime", "build", "jwt", "spark", "java"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pins = len(re.findall(r"^[a-z0-9].*==", text, flags=re.MULTILINE))
        blocks = len(re.findall(r"^[a-z0-9].*== ?.*\\\n    --hash", text, flags=re.MULTILINE))
        assert pins == blocks > 0, name


def test_copied_files_exist_and_are_not_ignored(tmp_path: Path) -> None:
    """.dockerignore is read as git reads such files, which is the same for what is in this one."""
    copied = [rest for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    sources = [word for rest in copied for word in rest.split()[:-1] if not word.startswith("--") and word != "."]
    assert sources
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text((ROOT / ".dockerignore").read_text())
    for source in [*sources, "pyproject.toml", "README.md", "LICENSE", "framework/tidegate/app.py"]:
        assert (ROOT / source).is_file(), source
        ignored = subprocess.run(["git", "check-ignore", "-q", source], cwd=tmp_path, check=False)
        assert ignored.returncode == 1, f"{source} is left out by .dockerignore"
    for source in (".git/config", "tests/support.py", "docker/secrets/api-tokens", ".venv/bin/python"):
        ignored = subprocess.run(["git", "check-ignore", "-q", "--no-index", source], cwd=tmp_path, check=False)
        assert ignored.returncode == 0 or source.startswith(".git/"), f"{source} is sent to the engine"


def test_packages_of_the_wheel_are_sent_to_the_engine() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {"framework/tidegate", "api/tidegate_api", "services/tidegate_services"} <= set(packages)
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert [package for package in packages if f"!{package.split('/')[0]}/" not in sent] == []

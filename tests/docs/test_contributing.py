"""What contributors and CI are given: the workflow, the hooks and the forms are valid, and agree with the Makefile."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tidegate.jvm.java import NEEDED

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
CHOOSER = ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"


def loaded(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content


def accepted(schema: str, *files: Path) -> bool:
    """By the schemas that the package check-jsonschema brings."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", [WORKFLOW]), ("github-issue-forms", FORMS), ("github-issue-config", [CHOOSER])],
)
def test_github_accepts_the_files(schema: str, files: list[Path]) -> None:
    assert files
    assert accepted(schema, *files)


@pytest.mark.parametrize(
    ("schema", "source", "right", "wrong"),
    [
        ("github-workflows", WORKFLOW, "runs-on:", "runs_on:"),
        ("github-workflows", WORKFLOW, "contents: read", "contents: reed"),
        ("github-issue-forms", FORMS[0], "type: textarea", "type: textaera"),
        ("github-issue-config", CHOOSER, "blank_issues_enabled: false", "blank_issues_enabled: maybe"),
    ],
)
def test_the_schemas_find_mistakes(tmp_path: Path, schema: str, source: Path, right: str, wrong: str) -> None:
    text = source.read_text()
    assert right in text
    broken = tmp_path / source.name
    broken.write_text(text.replace(right, wrong))
    assert not accepted(schema, broken)


def test_the_workflow_runs_what_a_developer_runs_on_every_python() -> None:
    (job,) = loaded(WORKFLOW)["jobs"].values()
    versions = job["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), flags=re.MULTILINE)
    first, last = (int(version.partition(".")[2]) for version in (versions[0], versions[-1]))

    assert versions == supported
    assert project["requires-python"] == f">=3.{first},<3.{last + 1}"
    assert f"not (3, {first}) <= sys.version_info < (3, {last + 1})" in (ROOT / "Makefile").read_text()

    steps = {step["uses"].partition("@")[0]: step["with"] for step in job["steps"] if "uses" in step}
    assert steps["actions/setup-java"] == {"distribution": "temurin", "java-version": str(NEEDED)}
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]
    commands = re.findall(r"^make \w+$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    assert commands == ["make check", "make test"]


def test_the_workflow_may_only_read_and_its_actions_are_pinned() -> None:
    workflow = loaded(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"actions/[\w-]+@(v\d+|[0-9a-f]{40})", action)] == []


def test_the_hooks_are_those_of_make_check() -> None:
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", HOOKS], check=True, timeout=60)
    entries = [hook["entry"] for repository in loaded(HOOKS)["repos"] for hook in repository["hooks"]]

    # What is installed already (--old-file) is no part of the recipe.
    dry = ["make", "--no-print-directory", "--dry-run", "--old-file=.venv/.setup-done", "VENV=.venv", "check"]
    recipe = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()

    assert len(entries) >= 4
    assert entries == recipe


def test_a_form_asks_for_each_thing_once() -> None:
    for form in FORMS:
        names = [field["id"] for field in loaded(form)["body"] if "id" in field]
        assert sorted(set(names)) == sorted(names), form.name


def test_paths_and_targets_that_the_guide_names_exist() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"`((?:tests|framework|docs|requirements)/[\w/.]*)`", guide))
    targets = set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)\b", guide)) - {"it", "them", "uses"}
    makefile = (ROOT / "Makefile").read_text()

    assert len(paths) > 10
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    assert {"run", "setup", "check", "test"} <= targets
    assert [name for name in sorted(targets) if not re.search(rf"^{name}:", makefile, flags=re.MULTILINE)] == []

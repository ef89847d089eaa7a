"""What mypy and pyright must say about the files of this suite, and what they say.

A line of a mistake that ends in `# mistake: ...` must be reported by both checkers; no other line of any file may be.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

__all__ = ("CHECKERS", "Line", "Reports", "SuiteError", "faults_of", "marked_lines", "mypy", "pyright")

_MARK: Final = re.compile(r"# mistake: (.+)$")
ROOT: Final = Path(__file__).parents[2]


class SuiteError(Exception):
    """A checker did not run to its end."""


class Line(NamedTuple):
    path: Path
    number: int


Reports = Mapping[Line, str]
"""What a checker says, by the line that it says it of."""


def marked_lines(files: Iterable[Path]) -> dict[Line, str]:
    """The lines that must be reported, each with what is wrong there."""
    return {
        Line(path, number): found[1]
        for path in files
        for number, text in enumerate(path.read_text().splitlines(), 1)
        if (found := _MARK.search(text)) is not None
    }


def faults_of(checker: str, wanted: Reports, reported: Reports, root: Path) -> Iterator[str]:
    """Where a checker says otherwise than the marks."""
    for line, mistake in wanted.items():
        if line not in reported:
            yield f"{_place(line, root)}: {checker} does not report this mistake: {mistake}"
    for line, message in reported.items():
        if line not in wanted:
            yield f"{_place(line, root)}: {checker} reports what is no mistake: {message}"


def _place(line: Line, root: Path) -> str:
    path = line.path.relative_to(root) if line.path.is_relative_to(root) else line.path
    return f"{path}:{line.number}"


def mypy(files: Iterable[Path]) -> Reports:
    """In the project's own configuration, which is strict."""
    ran = _run("mypy", "--output", "json", "--no-error-summary", *map(str, files))
    found = [msgspec.json.decode(text) for text in ran.splitlines() if text.startswith("{")]
    if ran and not found:
        raise SuiteError(f"mypy says:\n{ran}")
    errors = [item for item in found if item["severity"] == "error"]
    return {Line((ROOT / item["file"]).resolve(), item["line"]): item["message"] for item in errors}


def pyright(files: Iterable[Path]) -> Reports:
    """By basedpyright, which is pyright in a package that brings its own node; in pyright's
    standard mode, and in its strict one where nothing may be reported."""
    configuration = Path(__file__).with_name("pyrightconfig.json")
    ran = _run(
        "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(configuration), *map(str, files)
    )
    try:
        found: Any = msgspec.json.decode(ran)["generalDiagnostics"]
    except (msgspec.DecodeError, KeyError) as error:
        raise SuiteError(f"pyright says:\n{ran}") from error
    errors = [item for item in found if item["severity"] == "error"]
    return {Line(Path(item["file"]).resolve(), item["range"]["start"]["line"] + 1): item["message"] for item in errors}


def _run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SuiteError(f"{module} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


CHECKERS: Final[Mapping[str, Callable[[Iterable[Path]], Reports]]] = {"mypy": mypy, "pyright": pyright}

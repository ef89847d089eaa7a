"""The suite says so when a checker misses a mistake, or reports what is none; and its right programs run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.typecheck import HERE, MISTAKES, PROGRAMS, check
from tests.typecheck.suite import Line, SuiteError, faults_of, marked_lines, mypy, pyright


def written(path: Path, body: str) -> Path:
    """A program that is nowhere else: of contents that it knows, mypy names the path that they had before."""
    path.write_text(f'"""The program {path}."""\n\nfrom __future__ import annotations\n\n{body}')
    return path


def test_there_are_enough_of_both() -> None:
    assert len(MISTAKES) >= 25
    assert len(PROGRAMS) >= 25
    assert all(len(marked_lines([path])) == 1 for path in MISTAKES)


def test_a_mistake_that_both_report_and_a_right_program_are_fine(tmp_path: Path) -> None:
    mistake = written(tmp_path / "mistake.py", 'number: int = "3"  # mistake: an int\n')
    program = written(tmp_path / "program.py", "number: int = 3\n")
    assert check([mistake], [program]) == []


def test_a_mistake_that_a_checker_misses_is_named_with_its_line(tmp_path: Path) -> None:
    missed = written(tmp_path / "missed.py", "number: int = 3  # mistake: none that they see\n")
    faults = check([missed], [])
    assert len(faults) == 2
    assert f"{missed}:5: mypy does not report this mistake: none that they see" in faults
    assert f"{missed}:5: pyright does not report this mistake: none that they see" in faults


def test_a_report_elsewhere_is_a_fault_in_a_program_and_beside_a_mistake(tmp_path: Path) -> None:
    beside = written(tmp_path / "beside.py", 'a: int = "3"  # mistake: an int\nb: int = "4"\n')
    program = written(tmp_path / "program.py", 'c: int = "5"\n')
    faults = check([beside], [program])
    assert len(faults) == 4
    for checker in ("mypy", "pyright"):
        assert any(fault.startswith(f"{beside}:6: {checker} reports what is no mistake") for fault in faults)
        assert any(fault.startswith(f"{program}:5: {checker} reports what is no mistake") for fault in faults)


def test_a_mistake_without_a_mark_and_a_program_with_one_are_faults(tmp_path: Path) -> None:
    unmarked = written(tmp_path / "unmarked.py", "number: int = 3\n")
    marked = written(tmp_path / "marked.py", 'number: int = "3"  # mistake: in a right program\n')
    assert check([unmarked], [marked]) == [
        "unmarked.py: no line is marked as the mistake",
        "marked.py: a right program has no mistake",
    ]


def test_one_checker_may_be_right_and_the_other_wrong() -> None:
    line = Line(HERE / "mistakes" / "x.py", 3)
    assert list(faults_of("mypy", {line: "why"}, {}, HERE)) == [
        "mistakes/x.py:3: mypy does not report this mistake: why"
    ]
    assert list(faults_of("pyright", {line: "why"}, {line: "wrong"}, HERE)) == []


def test_a_file_with_a_syntax_error_is_not_skipped(tmp_path: Path) -> None:
    broken = written(tmp_path / "broken.py", "def (:\n")
    with pytest.raises(SuiteError, match=r"broken\.py"):
        mypy([broken])
    assert {line.path for line in pyright([broken])} == {broken}


@pytest.mark.parametrize("name", [path.stem for path in PROGRAMS])
def test_a_right_program_runs(name: str) -> None:
    importlib.import_module(f"tests.typecheck.programs.{name}").main()

"""What type checkers must report, and what they must accept: small programs as users write them.

Each file of `mistakes` has one mistake, on the line that ends in `# mistake: ...`; those of `programs` have none, and
run. `python -m tests.typecheck` gives all of them to mypy and to pyright, and is part of `make check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.typecheck.suite import CHECKERS, faults_of, marked_lines

__all__ = ("HERE", "MISTAKES", "PROGRAMS", "check")

HERE: Final = Path(__file__).resolve().parent
MISTAKES: Final = sorted((HERE / "mistakes").glob("*.py"))
PROGRAMS: Final = sorted((HERE / "programs").glob("*.py"))


def check(mistakes: Sequence[Path], programs: Sequence[Path]) -> list[str]:
    """Everything in which a checker disagrees with the suite. Each checker runs once, both at the same time."""
    files = [*mistakes, *programs]
    wanted = marked_lines(files)
    marked = {line.path for line in wanted}
    faults = [f"{path.name}: no line is marked as the mistake" for path in mistakes if path not in marked]
    faults += [f"{path.name}: a right program has no mistake" for path in programs if path in marked]
    with ThreadPoolExecutor() as pool:
        reports = dict(zip(CHECKERS, pool.map(lambda checker: checker(files), CHECKERS.values()), strict=True))
    for name, reported in reports.items():
        faults += faults_of(name, wanted, reported, HERE)
    return faults

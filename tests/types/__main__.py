"""`python -m tests.types`: that mypy and pyright report each seeded mistake, and nothing in the right programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.types.suite import CHECKERS, SuiteError, faults_of, marked_lines

HERE = Path(__file__).resolve().parent


def check(mistakes: Sequence[Path], programs: Sequence[Path]) -> list[str]:
    """Everything in which a checker disagrees with the suite; each file is given to each checker once."""
    files = [*mistakes, *programs]
    wanted = marked_lines(files)
    faults = [f"{path.name}: no line is marked as the mistake" for path in mistakes if not _marked(path, wanted)]
    faults += [f"{path.name}: a right program has no mistake" for path in programs if _marked(path, wanted)]
    with ThreadPoolExecutor() as pool:
        reports = dict(zip(CHECKERS, pool.map(lambda checker: checker(files), CHECKERS.values()), strict=True))
    for name, reported in reports.items():
        faults += faults_of(name, wanted, reported, HERE)
    return faults


def _marked(path: Path, wanted: object) -> bool:
    return any(line.path == path for line in marked_lines([path]))


def main() -> int:
    mistakes, programs = (sorted((HERE / name).glob("*.py")) for name in ("mistakes", "programs"))
    try:
        faults = check(mistakes, programs)
    except SuiteError as error:
        faults = [str(error)]
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    if not faults:
        print(f"{len(mistakes)} mistakes reported and {len(programs)} programs accepted by {' and '.join(CHECKERS)}")  # noqa: T201
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

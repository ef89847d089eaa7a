"""`python -m tests.typecheck`: that mypy and pyright report each seeded mistake, and nothing in the right programs."""

from __future__ import annotations

import sys

from tests.typecheck import MISTAKES, PROGRAMS, check
from tests.typecheck.suite import CHECKERS, SuiteError


def main() -> int:
    try:
        faults = check(MISTAKES, PROGRAMS)
    except SuiteError as error:
        faults = [str(error)]
    if faults:
        sys.stderr.write("\n".join(faults) + "\n")
        return 1
    checkers = " and ".join(CHECKERS)
    sys.stdout.write(f"{checkers} report all {len(MISTAKES)} mistakes and accept all {len(PROGRAMS)} programs\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

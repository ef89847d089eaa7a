"""`python -m examples.tinder_match.pipeline report`: a page with charts, from the tables that the jobs wrote."""

from __future__ import annotations

import argparse
from pathlib import Path

from examples.tinder_match.app import app
from examples.tinder_match.pipeline.report import report
from tidegate_spark.jobs.paths import TableLocations

parser = argparse.ArgumentParser(prog="python -m examples.tinder_match.pipeline", description=__doc__)
commands = parser.add_subparsers(required=True, metavar="report")
made = commands.add_parser("report", help="write an HTML page")
made.add_argument("--data", metavar="DIR", help="where the app keeps its data")
made.add_argument("--tables", metavar="DIR", help="where its tables are, if not there")
made.add_argument("--out", metavar="FILE", type=Path, default=Path("report.html"))


def main() -> None:
    given = parser.parse_args()
    places = TableLocations.of(app, {"data": given.data, "tables": given.tables})
    if not (Path(places.root) / "days").exists():
        parser.exit(1, f"There are no tables in {places.root} yet: run the jobs first.\n")
    given.out.write_text(report(Path(places.root)), encoding="utf-8")
    print(f"Wrote {given.out.absolute()}")


if __name__ == "__main__":
    main()

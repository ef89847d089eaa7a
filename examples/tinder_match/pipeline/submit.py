"""For spark-submit, which starts Java before Python: all jobs, to the end of what is there.

spark-submit --jars "$(tidegate pipeline jars examples.tinder_match.pipeline)" examples/tinder_match/pipeline/submit.py
"""

from __future__ import annotations

from examples.tinder_match.pipeline import app, collect, people, windows
from tidegate_spark import open_session, run_job


def main() -> None:
    spark = open_session("tinder")
    for each in (collect, windows, people):
        run_job(spark, app, each, once=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""tidegate pipeline"""

from __future__ import annotations

from typing import Any

import click

from tidegate_app.options import app_argument, json_option, setting_flags, take_flags

__all__ = ("command",)


@click.group("pipeline")
def command() -> None:
    """Run Spark jobs: from an app's topics to tables, exactly once, and back.

    The jobs of an APP are those in its module. Needs the extra spark (pip install 'tidegate[spark]') and Java 17 or
    newer.

    \b
    tidegate pipeline list examples.tinder_match.pipeline
    tidegate pipeline run examples.tinder_match.pipeline collect --once
    """


@command.command("list")
@app_argument
@json_option
@setting_flags("broker", "data", "tables")
def list_(app: str, as_json: bool, **options: Any) -> None:
    """List the jobs of an APP: what they read and what they write."""
    from tidegate_app.actions.pipeline import describe_jobs
    from tidegate_app.output import print_json, print_table

    rows = describe_jobs(app)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("job", "kind", "reads", "writes", "what it does"),
        [(row["job"], row["kind"], ", ".join(row["reads"]), ", ".join(row["writes"]), row["about"]) for row in rows],
    )


@command.command("run")
@app_argument
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("--once", is_flag=True, help="Exit when the current input is processed.")
@click.option("--interval", default="5 seconds", show_default=True, metavar="TIME", help="Time between micro-batches.")
@click.option("--master", metavar="URL", help="The same as --spark-master.")
@click.option("--jars", metavar="A.jar,B.jar", help="Use these jars instead of downloading the connector.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; can be repeated.")
@setting_flags("broker", "data", "tables", "spark_master")
def run(
    app: str,
    jobs: tuple[str, ...],
    once: bool,
    interval: str,
    master: str | None,
    jars: str | None,
    conf: tuple[str, ...],
    **options: Any,
) -> None:
    """Run JOBs, by default all, in one Spark session, from their last progress. Ctrl-C stops them in order.

    Jobs that read topics run concurrently; with --once, jobs that read only tables run after them.

    \b
    tidegate pipeline run shop.py totals --once
    tidegate pipeline run shop.py --master 'local[2]' --conf spark.driver.memory=2g
    """
    from tidegate_app.actions.pipeline import PipelineRun

    flags = take_flags(options)
    if master is not None:
        flags["spark_master"] = master
    PipelineRun(app, jobs, flags).run(once=once, interval=interval, jars=jars, conf=conf)


@command.command("status")
@app_argument
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@json_option
@setting_flags("broker", "data", "tables")
def status(app: str, jobs: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show the progress of JOBs: batches, lag, bad records. Needs no Spark session."""
    from tidegate_app.actions.pipeline import job_status
    from tidegate_app.output import print_json, print_table

    rows = job_status(app, jobs, take_flags(options))
    if as_json:
        print_json(rows)
        return
    fields = ("job", "output", "batches", "behind", "files", "last_batch")
    print_table(
        tuple(name.replace("_", " ") for name in fields),
        [tuple("" if row[name] is None else str(row[name]) for name in fields) for row in rows],
        right=("batches", "behind", "files"),
    )


@command.command("jars")
@app_argument
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@setting_flags("broker", "data")
def jars(app: str, jobs: tuple[str, ...], **options: Any) -> None:
    """Print the jars that JOBs need besides Spark's own, in spark-submit's format; missing jars are downloaded.

    \b
    spark-submit --jars "$(tidegate pipeline jars shop.py --broker kafka://HOST:9092)" submit.py
    """
    from tidegate_app.actions.pipeline import job_jars

    click.echo(",".join(job_jars(app, jobs, take_flags(options))))

"""`tidegate pipeline`: finds jobs, runs them in one Spark session, and shows their progress."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidegate.errors import UnknownNameError, UsageError
from tidegate_app.app_loader import load_app, load_module
from tidegate_app.output import note

if TYPE_CHECKING:
    from tidegate_spark.jobs.contract import Job
    from tidegate_spark.jobs.runner import Progress

__all__ = (
    "PipelineRun",
    "describe_jobs",
    "job_jars",
    "job_status",
    "jobs_of",
    "parse_conf",
    "print_progress",
    "stop_signals",
)


def jobs_of(target: str, names: Iterable[str] = ()) -> list[Job]:
    """The named jobs, or all jobs of the module."""
    from tidegate_spark.jobs.contract import find_jobs
    from tidegate_spark.session.spark_session import check_installed

    check_installed()
    found = find_jobs(load_module(target))
    if not found:
        raise UsageError(f"{target} defines no jobs: declare some with tidegate_spark.job in the app's module")
    for name in names:
        if name not in found:
            raise UnknownNameError("job", name, found)
    return [found[name] for name in names] or list(found.values())


def describe_jobs(target: str) -> list[dict[str, Any]]:
    load_app(target)
    return [
        {
            "job": job.name,
            "kind": "stream" if job.streams else "batch",
            "reads": [given.name for given in job.inputs],
            "writes": [made.name for made in job.outputs],
            "about": job.description,
        }
        for job in jobs_of(target)
    ]


def job_status(target: str, names: Iterable[str], flags: Mapping[str, Any]) -> list[dict[str, Any]]:
    from tidegate_spark.jobs.status import job_progress

    app = load_app(target)
    return asyncio.run(job_progress(app, jobs_of(target, names), flags))


def job_jars(target: str, names: Iterable[str], flags: Mapping[str, Any]) -> list[str]:
    """The jars that these jobs need besides Spark's own; missing ones are downloaded."""
    from importlib.metadata import version

    from tidegate_spark.session.jars import needed_jars
    from tidegate_spark.session.table_formats import formats_of

    settings = load_app(target).define().resolve(flags).settings
    kafka = settings.broker.startswith("kafka://")
    return needed_jars(version("pyspark"), kafka=kafka, formats=formats_of(_formats(jobs_of(target, names))))


def _formats(jobs: Iterable[Job]) -> set[str]:
    return {name for job in jobs for name in job.formats}


def parse_conf(given: Iterable[str]) -> dict[str, str]:
    options = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"--conf takes NAME=VALUE, not {item!r}")
        options[name] = value
    return options


@contextmanager
def stop_signals(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event instead of ending the process, so that Spark stops in order."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class PipelineRun:
    """Runs jobs until they finish or are stopped."""

    def __init__(self, target: str, names: Iterable[str], flags: Mapping[str, Any]) -> None:
        self._app, self._flags = load_app(target), flags
        self._jobs = jobs_of(target, names)
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []

    def run(self, *, once: bool, interval: str, jars: str | None, conf: Iterable[str]) -> None:
        """Run streams concurrently; then, with `once`, jobs that read only tables in the order of their declaration."""
        from tidegate_spark.session.spark_session import session

        settings = self._app.define().resolve(self._flags).settings
        with stop_signals(self._stopping), session(
            f"tidegate {self._app.define().id}",
            master=settings.spark_master,
            kafka=settings.broker.startswith("kafka://"),
            formats=_formats(self._jobs),
            jars=jars.split(",") if jars else (),
            options=parse_conf(conf),
        ) as spark:  # fmt: skip
            note(f"Running {', '.join(job.name for job in self._jobs)}.")
            self._run_concurrently(spark, [job for job in self._jobs if job.streams or not once], once, interval)
            for job in self._jobs:
                if once and not job.streams and not self._failures:
                    self._one(spark, job, once, interval)
        for failure in self._failures:
            raise failure

    def _run_concurrently(self, spark: Any, jobs: list[Job], once: bool, interval: str) -> None:
        threads = [threading.Thread(target=self._one, args=(spark, job, once, interval)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # short waits, so that Ctrl-C is handled

    def _one(self, spark: Any, job: Job, once: bool, interval: str) -> None:
        from tidegate_spark.jobs.runner import run_job

        try:
            run_job(
                spark,
                self._app,
                job,
                once=once,
                interval=interval,
                flags=self._flags,
                progress=print_progress,
                stopping=self._stopping.is_set,
            )
        except BaseException as error:
            self._failures.append(error)
            self._stopping.set()


def print_progress(progress: Progress) -> None:
    rows = f"{progress.rows:,} records, " if progress.rows else ""
    until = f", watermark {progress.watermark}" if progress.watermark else ""
    note(f"{progress.job} → {progress.output}: batch {progress.batch}, {rows}{progress.seconds:.1f} s{until}")

"""What `tidegate pipeline` does: finds jobs, runs them in one Spark session, and looks how far they are."""

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

__all__ = ("Running", "describe_jobs", "job_jars", "job_status", "jobs_of", "parse_conf", "tell", "until_told")


def jobs_of(target: str, names: Iterable[str] = ()) -> list[Job]:
    """Those that are named, or all that the module holds."""
    from tidegate_spark.jobs.contract import find_jobs
    from tidegate_spark.session.spark_session import check_installed

    check_installed()
    found = find_jobs(load_module(target))
    if not found:
        raise UsageError(f"{target} holds no jobs: write some with tidegate_spark.job beside the app")
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
    from tidegate_spark.jobs.status import look

    app = load_app(target)
    return asyncio.run(look(app, jobs_of(target, names), flags))


def job_jars(target: str, names: Iterable[str], flags: Mapping[str, Any]) -> list[str]:
    """What Spark needs for these jobs besides its own, fetched if it is not here yet."""
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
def until_told(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event instead of ending the process: Spark is to stop in order."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class Running:
    """Jobs that run until they are done, or somebody says stop."""

    def __init__(self, target: str, names: Iterable[str], flags: Mapping[str, Any]) -> None:
        self._app, self._flags = load_app(target), flags
        self._jobs = jobs_of(target, names)
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []

    def run(self, *, once: bool, interval: str, jars: str | None, conf: Iterable[str]) -> None:
        """Streams side by side; what reads tables, in the order of their declaration, after them."""
        from tidegate_spark.session.spark_session import session

        settings = self._app.define().resolve(self._flags).settings
        with until_told(self._stopping), session(
            f"tidegate {self._app.define().id}",
            master=settings.spark_master,
            kafka=settings.broker.startswith("kafka://"),
            formats=_formats(self._jobs),
            jars=jars.split(",") if jars else (),
            options=parse_conf(conf),
        ) as spark:  # fmt: skip
            note(f"Running {', '.join(job.name for job in self._jobs)}.")
            self._side_by_side(spark, [job for job in self._jobs if job.streams or not once], once, interval)
            for job in self._jobs:
                if once and not job.streams and not self._failures:
                    self._one(spark, job, once, interval)
        for failure in self._failures:
            raise failure

    def _side_by_side(self, spark: Any, jobs: list[Job], once: bool, interval: str) -> None:
        threads = [threading.Thread(target=self._one, args=(spark, job, once, interval)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # in short waits, so that Ctrl-C is heard

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
                progress=tell,
                stopping=self._stopping.is_set,
            )
        except BaseException as error:
            self._failures.append(error)
            self._stopping.set()


def tell(progress: Progress) -> None:
    rows = f"{progress.rows:,} records, " if progress.rows else ""
    until = f", watermark {progress.watermark}" if progress.watermark else ""
    note(f"{progress.job} → {progress.output}: batch {progress.batch}, {rows}{progress.seconds:.1f} s{until}")

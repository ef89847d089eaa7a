"""Every error that the Spark side raises on purpose.

TidegateError
└── SparkError
    ├── MissingSparkError        PySpark is not installed
    ├── ConnectorError           there are no pinned jars for the installed Spark
    ├── MissingJarsError         a session has not the jars that are needed
    ├── EventTypeError           a topic's type, time or watermark cannot be expressed in Spark
    ├── JobDefinitionError       a job is declared wrongly
    ├── NoTableError             a table that a job or a query reads is not there yet
    ├── TableOwnedError          a table was written by another life of its job
    ├── SavepointReadError       a savepoint cannot be read as a table
    └── JobFailedError           a job's query ended with an error
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.errors import TidegateError

__all__ = (
    "ConnectorError",
    "EventTypeError",
    "JobDefinitionError",
    "JobFailedError",
    "MissingJarsError",
    "MissingSparkError",
    "NoTableError",
    "SavepointReadError",
    "SparkError",
    "TableOwnedError",
)


class SparkError(TidegateError):
    """The root of what can go wrong between Tidegate and Spark."""


class MissingSparkError(SparkError):
    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(f"{missing} is not installed. Pipelines need the extra spark: pip install 'tidegate[spark]'")


class ConnectorError(SparkError):
    def __init__(self, installed: str, known: Iterable[str]) -> None:
        self.installed, self.known = installed, tuple(known)
        super().__init__(
            f"Spark {installed} is installed, and its Kafka connector is not among those that were tested "
            f"({', '.join(self.known)}). Install one of these, or name the jars yourself: --jars A.jar,B.jar "
            f"(spark-sql-kafka-0-10 and spark-token-provider-kafka-0-10 of {installed}, kafka-clients, commons-pool2; "
            f"for Delta tables delta-spark and delta-storage)."
        )


class MissingJarsError(SparkError):
    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"Spark has not the jars for {what}. A session that Tidegate makes has them: open_session(kafka=True, "
            f"formats=['delta']). One that you make, or spark-submit, must be given them: --jars \"$(tidegate pipeline "
            f'jars APP)"'
        )


class EventTypeError(SparkError):
    """A topic's type, time or watermark cannot be expressed in Spark."""


class JobDefinitionError(SparkError):
    """A job is declared wrongly."""


class NoTableError(SparkError):
    def __init__(self, table: str, where: str) -> None:
        self.table, self.where = table, where
        super().__init__(f"there is no table {table!r} in {where} yet: run the job that writes it first")


class TableOwnedError(SparkError):
    def __init__(self, table: str, owner: str, writer: str) -> None:
        self.table, self.owner, self.writer = table, owner, writer
        super().__init__(
            f"table {table} was written by query {owner}, and the checkpoint that is here belongs to query {writer}: "
            f"to go on would lose records or double them. Put the checkpoint back; or remove the table and the "
            f"checkpoint, and everything is read again from the beginning."
        )


class SavepointReadError(SparkError):
    """A savepoint cannot be read as a table."""


class JobFailedError(SparkError):
    def __init__(self, job: str, output: str, reason: str) -> None:
        self.job, self.output, self.reason = job, output, reason
        super().__init__(f"job {job!r} failed, in the query for its output {output!r}: {reason}")

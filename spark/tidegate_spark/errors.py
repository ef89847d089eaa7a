"""The errors of the Spark connector.

TidegateError
└── SparkError
    ├── MissingSparkError        PySpark is not installed
    ├── ConnectorError           there are no pinned jars for the installed Spark
    ├── MissingJarsError         a session lacks required jars
    ├── EventTypeError           a topic's type, time or watermark cannot be expressed in Spark
    ├── JobDefinitionError       a job is declared wrongly
    ├── NoTableError             a table that a job or a query reads does not exist yet
    ├── TableOwnedError          a table was written by a query with another checkpoint
    ├── SavepointReadError       a savepoint cannot be read as a table
    └── JobFailedError           a job's query failed
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
    """The root of the errors of the Spark connector."""


class MissingSparkError(SparkError):
    def __init__(self, missing: str) -> None:
        self.missing = missing
        super().__init__(f"{missing} is not installed. Pipelines need the extra spark: pip install 'tidegate[spark]'")


class ConnectorError(SparkError):
    def __init__(self, installed: str, known: Iterable[str]) -> None:
        self.installed, self.known = installed, tuple(known)
        super().__init__(
            f"Spark {installed} is installed, but Tidegate pins jars only for {', '.join(self.known)}. "
            f"Install one of these, or give the jars yourself: --jars A.jar,B.jar "
            f"(spark-sql-kafka-0-10 and spark-token-provider-kafka-0-10 of {installed}, kafka-clients, commons-pool2; "
            f"for Delta tables delta-spark and delta-storage)."
        )


class MissingJarsError(SparkError):
    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the Spark session lacks the jars for {what}. open_session(kafka=True, formats=['delta']) adds them; for "
            f'your own session or spark-submit, give --jars "$(tidegate pipeline jars APP)"'
        )


class EventTypeError(SparkError):
    """A topic's type, time or watermark cannot be expressed in Spark."""


class JobDefinitionError(SparkError):
    """A job is declared wrongly."""


class NoTableError(SparkError):
    def __init__(self, table: str, where: str) -> None:
        self.table, self.where = table, where
        super().__init__(f"table {table!r} does not exist yet in {where}: run the job that writes it first")


class TableOwnedError(SparkError):
    def __init__(self, table: str, owner: str, writer: str) -> None:
        self.table, self.owner, self.writer = table, owner, writer
        super().__init__(
            f"table {table} was written by query {owner}, but the current checkpoint belongs to query {writer}: "
            f"continuing would lose or duplicate records. Restore the checkpoint; or delete the table and the "
            f"checkpoint, so that all input is read again."
        )


class SavepointReadError(SparkError):
    """A savepoint cannot be read as a table."""


class JobFailedError(SparkError):
    def __init__(self, job: str, output: str, reason: str) -> None:
        self.job, self.output, self.reason = job, output, reason
        super().__init__(f"job {job!r} failed in the query for its output {output!r}: {reason}")

"""How a batch that fails here is told to Spark, and how a query that failed there is told to people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

__all__ = ("BatchError", "Sink", "reason", "told_briefly")

Sink = Callable[["DataFrame", int], None]
"""What Spark calls with each batch and its number."""

_INTERRUPTIONS: Final = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
_AS_SPARK_EXPECTS: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling a sink: "


class BatchError(Exception):
    """A batch failed in Java; the text says how."""


def told_briefly(sink: Sink) -> Sink:
    """The same, but for how it fails.

    Of each failure of a query that is being stopped, Spark asks whether it is only that. It looks for an interruption
    in the text that Python gives it, with the regular expression "Py4JJavaError: An error occurred while
    calling((.|...)*)(...)", for which Java's stack grows with every character (StreamExecution.PROXY_ERROR). A page of
    Java is too much for it, for 4 MB of stack, too: the query's thread ends with a StackOverflowError, and what went
    wrong is lost. So an interruption is told in one line of the form that is looked for, and all else in another."""

    def call(frame: DataFrame, batch: int) -> None:
        try:
            sink(frame, batch)
        except Py4JJavaError as error:
            stopped = next((name for name in _causes(error.java_exception) if name in _INTERRUPTIONS), None)
            raise BatchError(f"{_AS_SPARK_EXPECTS}{stopped}" if stopped else str(error)) from None

    return call


def _causes(failure: Any) -> Iterator[str]:
    """The Java classes of a failure and of what is behind it."""
    while failure is not None:
        yield failure.getClass().getName()
        failure = failure.getCause()


def reason(failure: PySparkException | Py4JJavaError) -> str:
    """What went wrong, without a page of Java: the first words, and what was behind them."""
    text = str(getattr(failure, "desc", None) or failure)
    lines = _raised(text) or _lines(text)
    behind = getattr(failure, "_cause", None)
    while behind is not None:
        lines += _lines(str(getattr(behind, "desc", None) or behind))[:1]
        behind = getattr(behind, "_cause", None)
    trace = str(getattr(failure, "stackTrace", None) or "").splitlines()
    lines += [line.strip() for line in trace if line.startswith("Caused by")]
    errors = [line for line in lines if _telling(line)]
    return "\n  ".join(dict.fromkeys((lines[:1] + errors[-3:])[:4]))[:2000]


def _raised(text: str) -> list[str]:
    """The words after a traceback of Python's, if there is one."""
    _, found, after = text.rpartition("Traceback (most recent call last):")
    return [line.strip() for line in after.splitlines() if line.strip() and not line[0].isspace()][:2] if found else []


def _telling(line: str) -> bool:
    return ("Error" in line or "Exception" in line or line.startswith("[")) and "by the Python Proxy" not in line


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]

"""Errors of batches as Spark expects them, and errors of queries as users can read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

__all__ = ("BatchError", "Sink", "reason", "with_short_errors")

Sink = Callable[["DataFrame", int], None]
"""The function that Spark calls with each batch and its number."""

_INTERRUPTIONS: Final = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
_AS_SPARK_EXPECTS: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling a sink: "


class BatchError(Exception):
    """A batch failed in Java; the message is the reason."""


def with_short_errors(sink: Sink) -> Sink:
    """The sink, with short error messages.

    When a query fails, Spark checks whether it was only interrupted by a stop. It matches the message from Python with
    the regular expression "Py4JJavaError: An error occurred while calling((.|...)*)(...)", whose recursion depth grows
    with every character (StreamExecution.PROXY_ERROR). A Java stack trace in the message overflows even a stack of
    4 MB: the query's thread ends with a StackOverflowError, and the real reason is lost. Therefore an interruption is
    reported in one line of the expected form, and any other failure in a line that does not match."""

    def call(frame: DataFrame, batch: int) -> None:
        try:
            sink(frame, batch)
        except Py4JJavaError as error:
            stopped = next((name for name in _causes(error.java_exception) if name in _INTERRUPTIONS), None)
            raise BatchError(f"{_AS_SPARK_EXPECTS}{stopped}" if stopped else str(error)) from None

    return call


def _causes(failure: Any) -> Iterator[str]:
    """The Java classes of an exception and its causes."""
    while failure is not None:
        yield failure.getClass().getName()
        failure = failure.getCause()


def reason(failure: PySparkException | Py4JJavaError) -> str:
    """The message of a failure and its causes, without Java stack traces."""
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
    """The exception after a Python traceback in the text, if there is one."""
    _, found, after = text.rpartition("Traceback (most recent call last):")
    return [line.strip() for line in after.splitlines() if line.strip() and not line[0].isspace()][:2] if found else []


def _telling(line: str) -> bool:
    return ("Error" in line or "Exception" in line or line.startswith("[")) and "by the Python Proxy" not in line


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]

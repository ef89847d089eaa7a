"""Configuration and fixtures of all tests."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Any

import pytest

pytest_plugins = ("tidegate_app.kafka.plugin",)

_TOGETHER = "tests/spark/"
"""Tests that share a Spark session, and so a process."""

_FIRST = (
    _TOGETHER,
    "tests/integration/kafka/test_faust.py",
    "tests/docs/test_code_blocks.py",
    "tests/faults/test_",
    "tests/integration/kafka/",
    "tests/faults/",
    "tests/integration/",
    "tests/examples/",
    "tests/docker/",
    "tests/contract/",
)
"""Long tests, longest first: a long test at the end would leave the other processes idle."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""JVM options for brokers that live for seconds on few cores: otherwise half of a broker's start is JIT compilation.
Measured until it responds: 2.4 seconds of CPU instead of 5.2."""

TEARDOWN_SECONDS = 180
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Settings for all processes that tests start: they inherit the environment."""
    config.stash[_STDERR] = os.dup(2)  # during tests, its output is captured
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise each of hundreds of processes compiles the same modules


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A hang ends the process, with the stacks of all threads. The timeouts of pytest and pytest-timeout are cancelled
    when a test has failed, but tasks that it left behind may still be awaited and never end."""
    faulthandler.dump_traceback_later(TEARDOWN_SECONDS, exit=True, file=item.config.stash[_STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file, like --dist loadfile, except for tests that share a session; long tests first."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _TOGETHER if nodeid.startswith(_TOGETHER) else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the processes of pytest-xdist, which get files in their collection order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> int:
    return next((turn for turn, begin in enumerate(_FIRST) if nodeid.startswith(begin)), len(_FIRST))

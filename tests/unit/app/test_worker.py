"""What a worker says when it stops. That it stops in order is shown with real processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidegate import App, Context, ValueState
from tidegate.errors import LogUnavailableError
from tidegate.logs.base import TopicPartition
from tidegate.logs.embedded.writer import EmbeddedWriter
from tidegate_app.worker import _Worker


def make_app(directory: Path, handled: asyncio.Event) -> App:
    app = App("stopping", data=directory, commit_interval=60.0)
    orders = app.topic("orders", value_type=str, partitions=1)

    @app.process(orders)
    async def waiter(ctx: Context, order: str, served: ValueState[str | None]) -> None:
        served.value = order
        handled.set()

    return app


@contextmanager
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log cannot be reached."""

    async def refuse(*_: Any) -> None:
        raise LogUnavailableError("the broker is away")

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedWriter, "append", refuse)
        yield


async def test_a_worker_reports_a_failed_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handled = asyncio.Event()
    app = make_app(tmp_path, handled)
    worker = _Worker(app, None)
    running = asyncio.create_task(worker.run())
    await app.host._opened.wait()
    await app.host.producer.send(TopicPartition("orders", 0), (b"a", b'"tea"', 0, ()))
    await handled.wait()

    with away(monkeypatch), caplog.at_level(logging.INFO, "tidegate.worker"):
        worker._stop.set()
        await running

    said = [record.getMessage() for record in caplog.records if record.name == "tidegate.worker"]
    assert said == ["stopped: what waiter.0 had not committed is handled again at the next start"]

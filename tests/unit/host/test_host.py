"""A host starts and stops in order, whatever fails in between."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tidegate import App, Context, ValueState
from tidegate.errors import LogInUseError, RefusedError, ServiceFailedError, SettingsError
from tidegate.functions.context import TaskInfo
from tidegate.host.host import Host
from tidegate.logs.base import TopicPartition
from tidegate.owner_rpc.client import connect
from tidegate.owner_rpc.protocol import Reset

app = App("hosted")
words = app.topic("words", value_type=str, partitions=2)


@app.process(words)
async def counter(ctx: Context, word: str, count: ValueState[int | None]) -> None:
    count.value = (count.value or 0) + 1


class Broken:
    """Whether tasks fail to open."""

    now = False


@counter.on_open
async def opening(task: TaskInfo) -> None:
    if Broken.now and task.number == 1:
        raise RuntimeError("cannot open")


def host_in(directory: Path, **flags: object) -> Host:
    return Host(app.define, flags={"data": directory, **flags})


async def is_free(directory: Path) -> bool:
    """Whether another host can start there, and does."""
    host = host_in(directory)
    await host.start()
    await host.stop()
    return True


async def test_a_start_reports_what_it_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tidegate.host.host"):
        assert await is_free(tmp_path)

    assert caplog.messages[0] == f"app hosted in {tmp_path / 'hosted'}: counter × 2"
    assert caplog.messages[1].startswith("recovered 0 keys, replayed 0 records in ")


async def test_a_second_host_is_refused_at_once(tmp_path: Path) -> None:
    first = host_in(tmp_path)
    await first.start()

    async with asyncio.timeout(3):
        with pytest.raises(LogInUseError):
            await host_in(tmp_path).start()

    await first.stop()


async def test_a_start_that_fails_lets_go_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_in(tmp_path)
    monkeypatch.setattr(Broken, "now", True)
    with pytest.raises(RuntimeError, match="cannot open"):
        await host.start()
    assert await connect(tmp_path / "hosted") is None
    await host.stop()

    monkeypatch.setattr(Broken, "now", False)
    assert await is_free(tmp_path)


async def test_a_metrics_address_in_use_is_refused(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]

    with pytest.raises(SettingsError, match=f"metrics cannot be served at 127.0.0.1:{port}"):
        await host_in(tmp_path, metrics=f"127.0.0.1:{port}").start()

    taken.close()
    await taken.wait_closed()
    assert await is_free(tmp_path)


async def test_a_reset_that_fails_fails_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_in(tmp_path)
    await host.start()
    run = asyncio.create_task(host.run())
    connection = await connect(tmp_path / "hosted")
    assert connection is not None
    monkeypatch.setattr(Broken, "now", True)

    with pytest.raises(RefusedError, match="cannot open"):
        await connection.reset(Reset())
    with pytest.raises(RuntimeError, match="cannot open"):
        await run

    await connection.close()
    await host.stop()
    monkeypatch.setattr(Broken, "now", False)
    assert await is_free(tmp_path)


async def test_a_handler_that_fails_while_it_is_let_end_fails_the_stop(tmp_path: Path) -> None:
    app, failing = App("late"), asyncio.Event()
    begun = asyncio.Event()
    orders = app.topic("orders", value_type=str, partitions=1)

    @app.process(orders)
    async def waiter(ctx: Context, order: str) -> None:
        begun.set()
        await failing.wait()
        raise ValueError("not that")

    host = Host(app.define, flags={"data": tmp_path})
    await host.start()
    run = asyncio.create_task(host.run())
    await host.producer.send(TopicPartition("orders", 0), (b"a", b'"tea"', 0, ()))
    await begun.wait()
    run.cancel()
    await asyncio.wait({run})
    asyncio.get_running_loop().call_later(0.1, failing.set)

    with pytest.raises(ServiceFailedError, match="not that"):
        await host.stop()

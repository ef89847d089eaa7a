"""Telling and asking from outside of handlers: in the worker's process, and beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from tidegate import App, AskTimeoutError, Context, Default, MessageFailedError, Posted, RejectedError, ValueState
from tidegate.errors import LogUnavailableError, RefusedError, UnknownMessageError, UsageError

Count = Annotated[ValueState[int], Default(0)]


class Add(msgspec.Struct, frozen=True):
    amount: int
    wait: bool = False


class Fail(msgspec.Struct, frozen=True):
    pass


def counting(**options: Any) -> App:
    """An app of its own for each worker and each client."""
    app = App("posted", **options)
    counter = app.actor("counter", partitions=2)

    @counter.on(Add, reply=int)
    async def add(ctx: Context, message: Add, count: Count) -> None:
        if message.wait:
            await asyncio.Event().wait()
        if message.amount < 0:
            raise RejectedError("only upwards")
        count.value += message.amount
        ctx.reply(count.value)

    @counter.on(Fail)
    async def fail(ctx: Context, message: Fail) -> None:
        raise ValueError("broken")

    return app


@asynccontextmanager
async def running(app: App) -> AsyncIterator[App]:
    await app.host.start()
    run = asyncio.create_task(app.host.run())
    try:
        yield app
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await app.host.stop()


async def test_a_worker_asks_its_own_services(tmp_path: Path) -> None:
    async with running(counting(data=tmp_path)) as app:
        counter = app.services["counter"]
        assert await counter.ask("a", Add(1), timeout=60) == 1
        posted = await counter.tell("a", Add(1))
        assert posted.topic == "posted.counter.mailbox"
        assert await counter.ask("a", Add(1), timeout=60) == 3
        with pytest.raises(RejectedError, match="only upwards"):
            await counter.ask("a", Add(-1), timeout=60)
        with pytest.raises(MessageFailedError, match="ValueError: broken"):
            await counter.ask("a", Fail(), timeout=60)
        with pytest.raises(UnknownMessageError, match="handles: Add, Fail"):
            await counter.ask("a", 5)


async def test_many_ask_at_the_same_time_and_each_gets_its_own_reply(tmp_path: Path) -> None:
    async with running(counting(data=tmp_path)) as app:
        counter = app.services["counter"]
        replies = await asyncio.gather(*(counter.ask(f"k{n % 10}", Add(1), timeout=60) for n in range(200)))
        assert sorted(replies) == sorted(list(range(1, 21)) * 10)


async def test_an_ask_ends_in_time_and_can_be_repeated_under_its_idempotency_key(tmp_path: Path) -> None:
    async with running(counting(data=tmp_path, drain_seconds=0.1)) as app:
        counter = app.services["counter"]
        with pytest.raises(AskTimeoutError, match="retry only if duplicates are harmless"):
            await counter.ask("stuck", Add(1, wait=True), timeout=0.2)
        first = await counter.ask("a", Add(1), idempotency_key="x", timeout=60)
        assert [await counter.ask("a", Add(1), idempotency_key="x", timeout=60) for _ in range(3)] == [first] * 3


async def test_a_waiting_client_gets_an_error_when_the_app_stops(tmp_path: Path) -> None:
    async with running(counting(data=tmp_path, drain_seconds=0.1)) as app:
        asking = asyncio.create_task(app.services["counter"].ask("a", Add(1, wait=True), timeout=60))
        while not any(task.invoker.waiting for task in app.host.tasks.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(LogUnavailableError, match="stopped before the reply came"):
        await asking


async def test_a_client_that_has_just_begun_to_ask_gets_an_error_when_the_app_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(counting(data=tmp_path)) as app:
        log, begun = app.host.log, asyncio.Event()

        async def slow(sources: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(log, "end_offsets", slow)
            asking = asyncio.create_task(app.services["counter"].ask("a", Add(1), timeout=60))
            await begun.wait()
        await app.host.actors.close()
        with pytest.raises(LogUnavailableError, match="stopped before"):
            await asking


async def test_after_a_reset_actors_are_empty_and_answer_asks(tmp_path: Path) -> None:
    async with running(counting(data=tmp_path)) as app:
        counter = app.services["counter"]
        for everything in (False, True):
            assert await counter.ask("a", Add(1), idempotency_key="x", timeout=60) == 1
            assert await counter.ask("a", Add(1), timeout=60) == 2
            await app.host.reset(outputs=False, everything=everything)
        assert await counter.ask("a", Add(1), timeout=60) == 1


async def test_another_process_asks_through_the_owner_of_the_log(tmp_path: Path) -> None:
    client = counting(data=tmp_path)
    async with running(counting(data=tmp_path)):
        counter = client.services["counter"]
        assert await counter.ask("a", Add(1), timeout=60) == 1
        async with client.connected():
            assert await counter.ask("a", Add(1), timeout=60) == 2
            await counter.tell("a", Add(5))
            replies = await asyncio.gather(*(counter.ask("a", Add(1), timeout=60) for _ in range(10)))
            assert sorted(replies) == list(range(8, 18))


async def test_waiting_messages_are_sent_in_one_batch_and_a_refused_one_fails_alone(tmp_path: Path) -> None:
    client = counting(data=tmp_path)
    async with running(counting(data=tmp_path)), client.connected():
        counter = client.services["counter"]
        large = [("padding", b"x" * (400 << 10))]
        tells = [counter.tell("a", Add(1), headers=large if n in (3, 4) else ()) for n in range(50)]
        too_large = counter.tell("a", Add(1), headers=[("padding", b"x" * (9 << 20))])
        *sent, refused = await asyncio.gather(*tells, too_large, return_exceptions=True)
        assert all(isinstance(posted, Posted) for posted in sent)
        assert isinstance(refused, RefusedError)
        assert await counter.ask("a", Add(0), timeout=60) == 50


async def test_a_tell_without_a_running_worker_is_handled_by_the_next_one(tmp_path: Path) -> None:
    client = counting(data=tmp_path)
    counter = client.services["counter"]
    await counter.tell("a", Add(5))
    async with client.connected():
        asking = asyncio.create_task(counter.ask("a", Add(1), timeout=60))
        await asyncio.sleep(0)
        async with running(counting(data=tmp_path)):
            assert await asking == 6


async def test_a_worker_of_other_code_is_named_as_the_reason(tmp_path: Path) -> None:
    other = App("posted", data=tmp_path)
    other.topic("words")
    client = counting(data=tmp_path)
    async with running(other):
        with pytest.raises(
            UsageError, match=r"no topic 'posted.replies' yet. The worker runs a different version of the code"
        ):
            await client.services["counter"].ask("a", Add(1), timeout=5)

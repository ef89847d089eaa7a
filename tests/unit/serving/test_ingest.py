"""Ingestion with an idempotency key, across a reset of the worker."""

from __future__ import annotations

from pathlib import Path

from tests.support import running
from tidegate import App, Context
from tidegate.serving.ingest import SendResult, TopicSender

app = App("shop")
orders = app.topic("orders", value_type=str, key=lambda order: order, partitions=1)


@app.process(orders)
async def shop(ctx: Context, order: str) -> None: ...


async def order(sender: TopicSender) -> SendResult:
    line = b'{"value":"tea"}'
    return await sender.send("orders", [line], body=line, key="one")


async def test_a_full_reset_forgets_idempotency_keys(tmp_path: Path) -> None:
    async with running(app, tmp_path) as host:
        sender = TopicSender(host)
        assert not (await order(sender)).again
        assert (await order(sender)).again

        await host.reset(outputs=False, everything=True)

        assert not (await order(sender)).again
        assert (await order(sender)).again
        await sender.close()


async def test_a_reset_that_leaves_the_inputs_does_not(tmp_path: Path) -> None:
    async with running(app, tmp_path) as host:
        sender = TopicSender(host)
        assert not (await order(sender)).again

        await host.reset(outputs=False, everything=False)

        assert (await order(sender)).again
        await sender.close()

"""Latency and throughput of asks: `python -m benchmarks.asks [--broker kafka://...]`.

The worker is this process, with one actor service of four tasks. Each of `--askers` coroutines asks one after the
other, for actors at random; what is timed is from `ask` to the committed reply."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Annotated
from uuid import uuid4

import click
import msgspec
import uvloop

from tidegate import App, Context, Default, ValueState

KEYS = 10_000


class Add(msgspec.Struct, frozen=True):
    amount: int


def counting(broker: str, data: Path) -> App:
    app = App(f"asks-{uuid4().hex[:8]}", broker=broker, data=data, partitions=4, api="off")
    counter = app.actor("counter")

    @counter.on(Add, reply=int)
    async def add(ctx: Context, message: Add, count: Annotated[ValueState[int], Default(0)]) -> None:
        count.value += message.amount
        ctx.reply(count.value)

    return app


async def measure(app: App, askers: int, seconds: float, *, once: bool) -> list[float]:
    """The latency of each ask in ms."""
    counter, dice, took = app.services["counter"], random.Random(1), list[float]()
    end = time.perf_counter() + seconds

    async def ask_on() -> None:
        while (began := time.perf_counter()) < end:
            key = uuid4().hex if once else None
            await counter.ask(f"k{dice.randrange(KEYS)}", Add(1), idempotency_key=key, timeout=60)
            took.append((time.perf_counter() - began) * 1000)

    await asyncio.gather(*(ask_on() for _ in range(askers)))
    return took


async def run(broker: str, seconds: float, askers: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        app = counting(broker, Path(directory))
        await app.host.start()
        running = asyncio.create_task(app.host.run())
        try:
            await measure(app, 4, 1.0, once=False)  # to warm up
            for count in askers:
                for once in (False, True):
                    took = await measure(app, count, seconds, once=once)
                    cuts = quantiles(took, n=100)
                    remembered = ", remembered" if once else ""
                    click.echo(
                        f"{count:4} askers{remembered}: {len(took) / seconds:,.0f} asks/s, "
                        f"median {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"
                    )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await app.host.stop()


@click.command()
@click.option("--broker", default="embedded://", show_default=True)
@click.option("--seconds", default=4.0, show_default=True, help="Of each measurement.")
@click.option("--askers", multiple=True, type=int, default=(1, 16, 256), show_default=True)
def main(broker: str, seconds: float, askers: tuple[int, ...]) -> None:
    """Ask, and print rates and latencies."""
    uvloop.run(run(broker, seconds, askers))


if __name__ == "__main__":
    main()

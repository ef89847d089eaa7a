"""Likes as JSON lines, at a steady rate, for apps that run elsewhere:

python -m examples.tinder_match.likes --rate 50 | tidegate send examples.tinder_match:app likes
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import click
import msgspec

from examples.tinder_match.events import Like
from examples.tinder_match.generator import Generator, LikeStream, Origin

__all__ = ("main",)


@click.command()
@click.option("--rate", type=click.FloatRange(min=1), default=50, show_default=True, help="Likes per second.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after about this many; by default run until Ctrl-C.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, other likes.")
def main(rate: float, count: int | None, seed: int) -> None:
    """Write generated likes to stdout, one JSON object per line."""
    encode = msgspec.json.Encoder().encode_lines

    async def write(likes: list[Like]) -> None:
        sys.stdout.buffer.write(encode(likes))
        sys.stdout.buffer.flush()
        if count is not None and generator.sent + len(likes) >= count:
            generator.stop()

    generator = Generator(LikeStream(seed, Origin()), write, rate=rate)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(generator.run())


if __name__ == "__main__":
    main()

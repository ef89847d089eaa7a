"""A rate limiter: a token bucket per key.

A bucket holds at most `burst` tokens and is refilled with `rate` tokens per second. A request takes as many as it
costs; if there are not enough, it takes none, and the reply says when there will be. Time is the requests' own
timestamps: the same requests get the same replies after a crash, and a request that waited in the mailbox counts at its
time of sending.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate import DEAD_LETTER, App, Context, RejectedError, Service, Topic, ValueState
from tidegate_services.mounting import ttl_of

__all__ = ("Acquire", "Decision", "RateLimiter")


class Acquire(msgspec.Struct, frozen=True, omit_defaults=True):
    """Take `cost` tokens, if there are enough. A cost of 0 only reads the bucket."""

    cost: float = 1.0


class Decision(msgspec.Struct, frozen=True):
    allowed: bool
    remaining: float
    """The tokens left."""
    retry_after: float
    """Seconds until there are enough tokens; 0: allowed."""


class Bucket(msgspec.Struct, frozen=True):
    tokens: float
    at: int
    """The time of this level, in ms."""


class RateLimiter:
    """Without a topic: `(await limiter.acquire("ann")).allowed`. With a topic, emits allowed events to `to`, and the
    others to `otherwise`, if it is given."""

    service: Service

    def __init__(
        self,
        app: App,
        *,
        rate: float,
        burst: float | None = None,
        name: str = "rate_limiter",
        topic: Topic[Any] | None = None,
        to: Topic[Any] | None = None,
        otherwise: Topic[Any] | None = None,
        **options: Any,
    ) -> None:
        """rate: tokens per second. burst: the capacity of a bucket; by default the refill of one second, at least 1.
        The options are those of `app.actor`, or with a topic those of `app.process`."""
        if not rate > 0:
            raise ValueError(f"rate must be more than 0 per second, not {rate:g}")
        self.rate, self.burst = float(rate), float(max(1.0, rate) if burst is None else burst)
        if not self.burst > 0:
            raise ValueError(f"burst must be more than 0, not {self.burst:g}")
        given = {"allowed": to, "refused": otherwise}
        outputs = {name: output for name, output in given.items() if output is not None}
        if outputs and topic is None:
            raise ValueError("to= and otherwise= are for events of a topic: give topic=, too")
        self.service = self._mount(app, topic, outputs, {"name": name, "errors": DEAD_LETTER, **options})

    async def acquire(self, key: Any, cost: float = 1.0, **options: Any) -> Decision:
        """Ask for tokens of this key's bucket. The options are those of `Service.ask`."""
        decision: Decision = await self.service.ask(key, Acquire(cost), **options)
        return decision

    def _mount(
        self, app: App, topic: Topic[Any] | None, outputs: dict[str, Topic[Any]], options: dict[str, Any]
    ) -> Service:
        full = ttl_of(self.burst / self.rate)  # a bucket that is unused for so long is full and need not be stored
        if topic is None:
            service = app.actor(options.pop("name"), **options)
        else:

            @app.process(topic, to=outputs, **options)
            async def limit(ctx: Context, event: Any, bucket: Annotated[ValueState[Bucket | None], full]) -> None:
                output = "allowed" if self._decide(ctx.timestamp, 1.0, bucket).allowed else "refused"
                if output in outputs:
                    ctx.emit(event, to=output)

            service = limit

        @service.on(Acquire, reply=Decision)
        async def acquire(ctx: Context, message: Acquire, bucket: Annotated[ValueState[Bucket | None], full]) -> None:
            if not 0 <= message.cost <= self.burst:
                raise RejectedError(f"a request costs 0 to {self.burst:g} tokens, not {message.cost:g}")
            ctx.reply(self._decide(ctx.timestamp, message.cost, bucket))

        return service

    def _decide(self, now: int, cost: float, state: ValueState[Bucket | None]) -> Decision:
        known = state.value or Bucket(tokens=self.burst, at=now)
        passed = max(0, now - known.at) / 1000  # requests may arrive out of order
        tokens = min(self.burst, known.tokens + passed * self.rate)
        allowed = tokens >= cost
        left = tokens - cost if allowed else tokens
        state.value = Bucket(tokens=left, at=max(now, known.at))
        return Decision(allowed=allowed, remaining=left, retry_after=0.0 if allowed else (cost - tokens) / self.rate)

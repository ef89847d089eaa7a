"""A rate limiter: a token bucket per key.

A bucket holds `burst` tokens at most, and `rate` more flow into it each second. A request takes as many as it costs; if
there are not enough it takes none, and is told when there will be. Time is the requests' own: the same requests get the
same answers, also after a crash, and one that waited in the mailbox is judged by when it was sent.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate import DEAD_LETTER, App, Context, RejectedError, Service, Topic, ValueState
from tidegate_services.mounting import living

__all__ = ("Acquire", "Decision", "RateLimiter")


class Acquire(msgspec.Struct, frozen=True, omit_defaults=True):
    """Take as many tokens, if there are enough. With a cost of 0, look only."""

    cost: float = 1.0


class Decision(msgspec.Struct, frozen=True):
    allowed: bool
    remaining: float
    """Tokens that are left."""
    retry_after: float
    """Seconds until there are enough; 0: it was allowed."""


class Bucket(msgspec.Struct, frozen=True):
    tokens: float
    at: int
    """When it held so many, in ms."""


class RateLimiter:
    """Mount it, and ask it: `(await limiter.acquire("ann")).allowed`. Or give it a topic: what the limit allows goes on
    to `to`, what it does not to `otherwise`, or nowhere."""

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
        """rate: tokens per second. burst: how many a bucket holds; as many as flow in a second unless given, and at
        least one. The options are those of `app.actor`, or with a topic those of `app.process`."""
        if not rate > 0:
            raise ValueError(f"rate must be more than 0 per second, not {rate:g}")
        self.rate, self.burst = float(rate), float(max(1.0, rate) if burst is None else burst)
        if not self.burst > 0:
            raise ValueError(f"burst must be more than 0, not {self.burst:g}")
        given = {"allowed": to, "refused": otherwise}
        outputs = {name: output for name, output in given.items() if output is not None}
        if outputs and topic is None:
            raise ValueError("to= and otherwise= are for what comes from a topic: give topic=, too")
        self.service = self._mount(app, topic, outputs, {"name": name, "errors": DEAD_LETTER, **options})

    async def acquire(self, key: Any, cost: float = 1.0, **options: Any) -> Decision:
        """Ask for tokens of this key's bucket. The options are those of `Service.ask`."""
        decision: Decision = await self.service.ask(key, Acquire(cost), **options)
        return decision

    def _mount(
        self, app: App, topic: Topic[Any] | None, outputs: dict[str, Topic[Any]], options: dict[str, Any]
    ) -> Service:
        full = living(self.burst / self.rate)  # a bucket that nobody used for so long is full, and need not be kept
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
        passed = max(0, now - known.at) / 1000  # requests may come in another order than they were sent
        tokens = min(self.burst, known.tokens + passed * self.rate)
        allowed = tokens >= cost
        left = tokens - cost if allowed else tokens
        state.value = Bucket(tokens=left, at=max(now, known.at))
        return Decision(allowed=allowed, remaining=left, retry_after=0.0 if allowed else (cost - tokens) / self.rate)

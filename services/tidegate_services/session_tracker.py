"""A session tracker: events of a key that are less than `gap` apart form a session.

With a topic, sessions use event time: a session ends when the watermark is `gap` past its last event, and out-of-order
events are counted. With messages only, they use processing time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate import DEAD_LETTER, App, Context, Service, Topic, ValueState
from tidegate_services.mounting import Span, seconds_of

__all__ = ("Close", "Current", "Session", "SessionTracker", "Touch")


class Touch(msgspec.Struct, frozen=True):
    """An event: continues the session, or begins one. The reply is the current session."""


class Current(msgspec.Struct, frozen=True):
    """Read the session. The reply is the session, or None."""


class Close(msgspec.Struct, frozen=True):
    """End the session now. The reply is the session, or None."""


class Session(msgspec.Struct, frozen=True):
    key: str
    started: int
    last: int
    """The time of its last event, in ms."""
    events: int


class SessionTracker:
    """Tracks the events of a topic, or `await tracker.touch("ann")`. Emits ended sessions to `to`."""

    service: Service

    def __init__(
        self,
        app: App,
        *,
        gap: Span,
        to: Topic[Any] | None = None,
        name: str = "session_tracker",
        topic: Topic[Any] | None = None,
        **options: Any,
    ) -> None:
        """gap: the pause that ends a session. to: a topic of `Session`. The options are those of `app.actor`, or with a
        topic those of `app.process`."""
        options = {"name": name, "errors": DEAD_LETTER, **options}
        self.service = _mount(app, seconds_of(gap, "gap"), topic, to, options)

    async def touch(self, key: Any, **options: Any) -> Session:
        """Record an event. The options are those of `Service.ask`."""
        session: Session = await self.service.ask(key, Touch(), **options)
        return session

    async def current(self, key: Any, **options: Any) -> Session | None:
        session: Session | None = await self.service.ask(key, Current(), **options)
        return session

    async def close(self, key: Any, **options: Any) -> Session | None:
        """End the session of this key now, if there is one."""
        session: Session | None = await self.service.ask(key, Close(), **options)
        return session


def _mount(app: App, gap: float, topic: Topic[Any] | None, to: Topic[Any] | None, options: dict[str, Any]) -> Service:
    outputs = () if to is None else (to,)
    if topic is None:
        service = app.actor(options.pop("name"), to=outputs, **options)
    else:

        @app.process(topic, to=outputs, **options)
        async def track(ctx: Context, event: Any, session: ValueState[Session | None]) -> None:
            touch(ctx, session)

        service = track

    def touch(ctx: Context, state: ValueState[Session | None]) -> Session:
        known, now = state.value, ctx.timestamp
        session = state.value = Session(
            key=str(ctx.key),
            started=now if known is None else min(known.started, now),
            last=now if known is None else max(known.last, now),
            events=1 if known is None else known.events + 1,
        )
        if topic is None:
            ctx.timers.after(gap, name="end", time="processing")
        else:
            ctx.timers.at(session.last + round(gap * 1000), name="end")
        return session

    def close(ctx: Context, state: ValueState[Session | None]) -> Session | None:
        session = state.value
        if session is not None and to is not None:
            ctx.emit(session, key=ctx.key, timestamp=session.last)
        state.clear()
        return session

    @service.on(Touch, reply=Session)
    async def on_touch(ctx: Context, message: Touch, session: ValueState[Session | None]) -> None:
        ctx.reply(touch(ctx, session))

    @service.on(Current, reply=Session | None)
    async def on_current(ctx: Context, message: Current, session: ValueState[Session | None]) -> None:
        ctx.reply(session.value)

    @service.on(Close, reply=Session | None)
    async def on_close(ctx: Context, message: Close, session: ValueState[Session | None]) -> None:
        ctx.timers.cancel("end")
        ctx.reply(close(ctx, session))

    @service.on_timer("end")
    async def on_end(ctx: Context, session: ValueState[Session | None]) -> None:
        close(ctx, session)

    return service

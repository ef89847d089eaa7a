"""A deduplicator: passes the first event or offer of each id, per key, within a time.

Only ids are stored, each until it expires. The first one is determined by the order of the key's partition, and
recorded in the commit that emits it: no crash lets a duplicate through.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate import DEAD_LETTER, App, Context, MapState, Service, Topic
from tidegate_services.mounting import Field, Span, getter, seconds_of, ttl_of

__all__ = ("Deduplicator", "Offer", "Verdict")


class Offer(msgspec.Struct, frozen=True):
    """Ask whether an id is new."""

    id: str


class Verdict(msgspec.Struct, frozen=True):
    first: bool
    seen_at: int
    """The timestamp of the first event or offer with the id, in ms."""


class Deduplicator:
    """With a topic, emits the first event of each id to `to`, and the others to `duplicates`, if it is given. Without
    one: `(await deduplicator.offer("orders", "4711")).first`."""

    service: Service

    def __init__(
        self,
        app: App,
        *,
        within: Span,
        name: str = "deduplicator",
        topic: Topic[Any] | None = None,
        id: Field | None = None,
        to: Topic[Any] | None = None,
        duplicates: Topic[Any] | None = None,
        **options: Any,
    ) -> None:
        """within: how long an id is remembered after it is first seen, in processing time. id: the id of an event, a
        field or a function; ids are distinct per key of the topic. The options are those of `app.actor`, or with a
        topic those of `app.process`."""
        given = {"first": to, "duplicates": duplicates}
        outputs = {name: output for name, output in given.items() if output is not None}
        if topic is None and (outputs or id is not None):
            raise ValueError("id=, to= and duplicates= are for events of a topic: give topic=, too")
        if topic is not None and (id is None or to is None):
            raise ValueError("a topic needs id=, the id of its events, and to=, the topic for the first of each id")
        self.service = _mount(
            app, seconds_of(within, "within"), topic, id, outputs, {"name": name, "errors": DEAD_LETTER, **options}
        )

    async def offer(self, key: Any, id: str, **options: Any) -> Verdict:
        """Ask whether an id is new to this key. The options are those of `Service.ask`."""
        verdict: Verdict = await self.service.ask(key, Offer(id), **options)
        return verdict


def _mount(
    app: App,
    within: float,
    topic: Topic[Any] | None,
    id: Field | None,
    outputs: dict[str, Topic[Any]],
    options: dict[str, Any],
) -> Service:
    kept = ttl_of(within)
    if topic is None:
        service = app.actor(options.pop("name"), **options)
    else:
        id_of = getter(id if id is not None else "id")

        @app.process(topic, to=outputs, **options)
        async def deduplicate(ctx: Context, event: Any, seen: Annotated[MapState[str, int], kept]) -> None:
            output = "first" if _judge(ctx, str(id_of(event)), seen).first else "duplicates"
            if output in outputs:
                ctx.emit(event, to=output)

        service = deduplicate

    @service.on(Offer, reply=Verdict)
    async def offer(ctx: Context, message: Offer, seen: Annotated[MapState[str, int], kept]) -> None:
        ctx.reply(_judge(ctx, message.id, seen))

    return service


def _judge(ctx: Context, id: str, seen: MapState[str, int]) -> Verdict:
    known = seen.get(id)
    if known is None:
        seen[id] = ctx.timestamp
    return Verdict(first=known is None, seen_at=ctx.timestamp if known is None else known)

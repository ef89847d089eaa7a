"""Counters with leaderboards: a counter per key, and per board the highest counters.

A counter sends its total to its boards at most once per `every`, so a board is at most that much behind, and a busy
counter costs no more than a quiet one. Counters only grow. A board that keeps only the top `size` counters is therefore
exact: a counter that is not on it is too low, and is sent again when it grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from tidegate import DEAD_LETTER, App, Context, Default, MapState, RejectedError, Service, Topic, ValueState
from tidegate_services.mounting import Field, Span, getter, seconds_of

__all__ = ("Count", "Counters", "Increment", "Standing", "Top")

ALL: Final = "all"
"""The default board."""


class Increment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Increment the counter. The reply is its total on that board."""

    by: int = 1
    board: str = ALL


class Count(msgspec.Struct, frozen=True, omit_defaults=True):
    """The counter's total."""

    board: str = ALL


class Top(msgspec.Struct, frozen=True, omit_defaults=True):
    """The top entries of a board, highest first; ties in order of arrival."""

    limit: int = 10


class Standing(msgspec.Struct, frozen=True):
    name: str
    count: int


class Counters:
    """Counts the events of a topic, or `await counters.add("ann")`; `await counters.top(10)` reads a board."""

    service: Service
    """The counters, by key."""
    boards: Service
    """The boards, by name."""

    def __init__(
        self,
        app: App,
        *,
        name: str = "counters",
        size: int = 100,
        every: Span = 1.0,
        topic: Topic[Any] | None = None,
        by: Field | None = None,
        board: Field | None = None,
        **options: Any,
    ) -> None:
        """size: how many entries a board keeps. every: the least time between a counter's updates of its boards. by:
        the increment of an event, a field or a function; default 1. board: the board of an event, a field or a
        function. The options are those of `app.actor`, or with a topic those of `app.process`, for the counters."""
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        self.size = size
        self.boards = _mount_boards(app, f"{name}_boards", size)
        amount, where = _reader(by, 1), _reader(board, ALL)
        self.service = _mount_counters(
            app, self.boards, seconds_of(every, "every"), topic, amount, where,
            {"name": name, "errors": DEAD_LETTER, **options},
        )  # fmt: skip

    async def add(self, key: Any, by: int = 1, *, board: str = ALL, **options: Any) -> int:
        """Increment the counter, and return its total. The options are those of `Service.ask`."""
        total: int = await self.service.ask(key, Increment(by, board), **options)
        return total

    async def count(self, key: Any, *, board: str = ALL, **options: Any) -> int:
        total: int = await self.service.ask(key, Count(board), **options)
        return total

    async def top(self, limit: int = 10, *, board: str = ALL, **options: Any) -> list[Standing]:
        standings: list[Standing] = await self.boards.ask(board, Top(limit), **options)
        return standings


def _reader(field: Field | None, constant: Any) -> Callable[[Any], Any]:
    return getter(field) if field is not None else lambda _: constant


def _mount_boards(app: App, name: str, size: int) -> Service:
    service = app.actor(name)

    @service.on(Standing)
    async def place(
        ctx: Context, message: Standing, standings: Annotated[ValueState[tuple[Standing, ...]], Default(())]
    ) -> None:
        others = [standing for standing in standings.value if standing.name != message.name]
        standings.value = tuple(sorted([*others, message], key=lambda standing: -standing.count)[:size])

    @service.on(Top, reply=list[Standing])
    async def top(
        ctx: Context, message: Top, standings: Annotated[ValueState[tuple[Standing, ...]], Default(())]
    ) -> None:
        if message.limit < 1:
            raise RejectedError(f"limit must be at least 1, not {message.limit}")
        ctx.reply(list(standings.value[: message.limit]))

    return service


def _mount_counters(
    app: App,
    boards: Service,
    every: float,
    topic: Topic[Any] | None,
    amount: Callable[[Any], Any],
    where: Callable[[Any], Any],
    options: dict[str, Any],
) -> Service:
    if topic is None:
        service = app.actor(options.pop("name"), **options)
    else:

        @app.process(topic, **options)
        async def tally(
            ctx: Context,
            event: Any,
            counts: Annotated[MapState[str, int], Default(0)],
            untold: MapState[str, bool],
        ) -> None:
            count(ctx, int(amount(event)), str(where(event)), counts, untold)

        service = tally

    def count(ctx: Context, by: int, board: str, counts: MapState[str, int], untold: MapState[str, bool]) -> int:
        if by < 1:
            raise RejectedError(f"counters only grow: by at least 1, not {by}")
        counts[board] += by
        untold[board] = True
        if ctx.timers.get("tell") is None:
            ctx.timers.after(every, name="tell", time="processing")
        return counts[board]

    @service.on(Increment, reply=int)
    async def increment(
        ctx: Context,
        message: Increment,
        counts: Annotated[MapState[str, int], Default(0)],
        untold: MapState[str, bool],
    ) -> None:
        ctx.reply(count(ctx, message.by, message.board, counts, untold))

    @service.on(Count, reply=int)
    async def look(ctx: Context, message: Count, counts: Annotated[MapState[str, int], Default(0)]) -> None:
        ctx.reply(counts[message.board])

    @service.on_timer("tell")
    async def tell(ctx: Context, counts: MapState[str, int], untold: MapState[str, bool]) -> None:
        for board in list(untold):
            ctx.tell(boards, board, Standing(str(ctx.key), counts[board]))
        untold.clear()

    return service

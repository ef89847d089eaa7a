"""The class form of a service: the same as a decorated function, with more room."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tidegate.functions.context import Context, TaskInfo, Timer

__all__ = ("ProcessFunction",)

In = TypeVar("In")
Out = TypeVar("Out")


class ProcessFunction(Generic[In, Out]):
    """Derive from it, annotate the states as attributes, and register it with `@app.process(topic, to=...)`.

        @app.process(clicks, to=counts)
        class Count(ProcessFunction[Click, int]):
            seen: Annotated[ValueState[int], Default(0)]

            async def process(self, ctx: Context, event: Click) -> None:
                self.seen.value += 1
                ctx.emit(self.seen.value)

    Handlers that overlap each work on a copy of the object that `open` prepared, so keep what belongs to a key in its
    state, and what is shared (a client, a model) on `self` in `open`."""

    async def open(self, task: TaskInfo) -> None:
        """Before the first record of a task."""

    async def close(self) -> None:
        """After the last one."""

    async def process(self, ctx: Context, event: In) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a method: async def process(self, ctx, event)")

    async def on_timer(self, ctx: Context, timer: Timer) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} sets a timer, so it needs: async def on_timer(self, ctx, timer)"
        )

"""The class form of a service: the same as a decorated function, with more room."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.errors import UsageError
from tidegate.functions.context import Context, TaskInfo, Timer
from tidegate.state.kinds import State

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

    if not TYPE_CHECKING:  # a type checker that saw these would let any name pass

        def __setattr__(self, name: str, value: Any) -> None:
            """A state that is replaced by a value would be lost for all keys of the task, without a word."""
            if isinstance(self.__dict__.get(name), State):
                raise UsageError(
                    f"{type(self).__name__}.{name} is a state: change what it holds, such as self.{name}.value = ..."
                )
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            if any(name in inspect.get_annotations(cls) for cls in type(self).__mro__):
                raise AttributeError(
                    f"{type(self).__name__} has no {name!r} yet. If it is a state: it belongs to a key, so only the "
                    f"handlers of records, timers and messages have it; open and close do not"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

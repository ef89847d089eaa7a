"""The class form of a service: handlers and hooks as methods, and states as attributes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.errors import UsageError
from tidegate.functions.context import Context, TaskInfo, Timer
from tidegate.state.kinds import State

__all__ = ("ProcessFunction",)

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class _Done:
    """The awaitable that `super().open(task)` returns. It completes immediately."""

    def __await__(self) -> Iterator[None]:
        return iter(())


_DONE = _Done()


class ProcessFunction(Generic[In, Out]):
    """Derive from it, annotate the states as attributes, and register it with `@app.process(topic, to=...)`.

        @app.process(clicks, to=counts)
        class Count(ProcessFunction[Click, int]):
            seen: Annotated[ValueState[int], Default(0)]

            async def process(self, ctx: Context, event: Click) -> None:
                self.seen.value += 1
                ctx.emit(self.seen.value)

    Methods may be `async def` as well, and then await. Handlers that overlap each work on a copy of the object that
    `open` prepared, so keep what belongs to a key in its state, and what is shared (a client, a model) on `self` in
    `open`."""

    # Each of these may be a `def` or an `async def`, so they return Any.
    def open(self, task: TaskInfo, /) -> Any:
        """Before the first record of a task."""
        return _DONE

    def close(self) -> Any:
        """After the last one."""
        return _DONE

    def process(self, ctx: Context, event: In, /) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a method: def process(self, ctx, event)")

    def on_timer(self, ctx: Context, timer: Timer, /) -> Any:
        raise NotImplementedError(f"{type(self).__name__} sets a timer, so it needs: def on_timer(self, ctx, timer)")

    if not TYPE_CHECKING:  # a type checker that saw these would let any name pass

        def __setattr__(self, name: str, value: Any) -> None:
            """Replacing a state by a value would silently lose it for all keys of the task."""
            if isinstance(self.__dict__.get(name), State):
                raise UsageError(
                    f"{type(self).__name__}.{name} is a state: change its content, such as self.{name}.value = ..."
                )
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            if any(name in inspect.get_annotations(cls) for cls in type(self).__mro__):
                raise AttributeError(
                    f"{type(self).__name__} has no {name!r} yet. If it is a state: it belongs to a key, so only the "
                    f"handlers of records, timers and messages have it; open and close do not"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

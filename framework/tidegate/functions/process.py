"""ProcessFunction: a service as a class, with its handlers as methods and its states as attributes."""

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
    """Makes `await super().open(task)` work, with nothing to wait for."""

    def __await__(self) -> Iterator[None]:
        return iter(())


_DONE = _Done()


class ProcessFunction(Generic[In, Out]):
    """Base class of services with methods as handlers and annotated attributes as states.

    In is the type of its events, Out that of its outputs.

        @app.process(clicks, to=counts)
        class Count(ProcessFunction[Click, int]):
            seen: Annotated[ValueState[int], Default(0)]

            async def process(self, ctx: Context, event: Click) -> None:
                self.seen.value += 1
                ctx.emit(self.seen.value)

    Methods may be `async def` too. Concurrent handlers get copies of the object after `open`. So keep the data of a key
    in its states, and what all keys share, such as a client or a model, in attributes that `open` sets."""

    # Each method may be a `def` or an `async def`, so that only Any fits as its return type.
    def open(self, task: TaskInfo, /) -> Any:
        """Called before the first record of a task."""
        return _DONE

    def close(self) -> Any:
        """Called after the last record of a task."""
        return _DONE

    def process(self, ctx: Context, event: In, /) -> Any:
        """Handles one record of the input topics."""
        raise NotImplementedError(f"{type(self).__name__} needs a method: def process(self, ctx, event)")

    def on_timer(self, ctx: Context, timer: Timer, /) -> Any:
        """Handles a timer that has fired."""
        raise NotImplementedError(f"{type(self).__name__} sets a timer, so it needs: def on_timer(self, ctx, timer)")

    if not TYPE_CHECKING:  # with these visible, type checkers would accept any attribute name

        def __setattr__(self, name: str, value: Any) -> None:
            """Refuses to replace a state with a value, which would silently lose the state for all keys of the task."""
            if isinstance(self.__dict__.get(name), State):
                raise UsageError(
                    f"{type(self).__name__}.{name} is a state: change its contents, such as self.{name}.value = ..."
                )
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            if any(name in inspect.get_annotations(cls) for cls in type(self).__mro__):
                raise AttributeError(
                    f"{type(self).__name__} has no {name!r} yet. If it is a state: a state belongs to a key, so only "
                    f"handlers of records, timers and messages can use it, but not open and close"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

"""Reads the signatures of handlers: which parameter is the context, which the event, and which are states."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.codecs import type_name, types_overlap
from tidegate.errors import DefinitionError
from tidegate.functions.context import Context, Timer
from tidegate.functions.declaration.handler_call import ReorderedHandler, wraps_async
from tidegate.functions.declaration.handler_spec import HandlerSpec
from tidegate.state.declaration import StateDeclaration, declare

__all__ = ("HandlerSignature", "check_key_type", "check_method", "read_class_states", "read_signature")


@dataclass(frozen=True, kw_only=True)
class HandlerSignature:
    label: str
    """The handler's name in error messages."""
    states: tuple[StateDeclaration, ...]
    event_type: Any
    """The annotated type of the event; Any: not annotated."""
    key_type: Any
    """K of `Context[K]`; Any: not annotated."""
    reply_type: Any
    """R of `Context[K, R]`; Any: not annotated."""
    call: Callable[..., Any]
    """The handler as a function of context, event, and the states in the order of `states`."""

    @property
    def handler(self) -> HandlerSpec:
        names = tuple(state.name for state in self.states)
        event_type = Any if self.event_type is None else self.event_type
        return HandlerSpec(function=self.call, states=names, event_type=event_type)


def read_signature(handler: Callable[..., Any], names: Mapping[str, Any], *, event: str) -> HandlerSignature:
    """`event`: what the handler takes in addition to its states, "event" or "timer"."""
    label = getattr(handler, "__qualname__", repr(handler))
    _check_function(label, handler)
    hints = _hints(handler, names, label)
    order: list[int | StateDeclaration] = []
    event_type: Any = None
    context: Any = Context
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            raise DefinitionError(f"{label}: parameter {parameter.name!r} must be positional, not keyword-only or *")
        annotation = hints.get(parameter.name, Any)
        declaration = declare(parameter.name, annotation)
        if declaration is not None:
            if parameter.default is not parameter.empty:
                _refuse_default(label, parameter.name, parameter.default)
            order.append(declaration)
        elif _is_context(annotation) or (annotation is Any and parameter.name in ("ctx", "context")):
            context = annotation
            order.append(0)
        elif event_type is None:
            event_type = annotation
            order.append(1)
        else:
            raise DefinitionError(
                f"{label}: parameter {parameter.name!r} is neither the Context nor the {event} nor a state: annotate "
                f"it as a state, such as ValueState[int | None], or remove it"
            )
    if event == "event" and event_type is None:
        raise DefinitionError(
            f"{label} takes no event; write for example: def {_name(handler)}(ctx: Context, event: Event)"
        )
    if event == "timer" and event_type not in (None, Any, Timer):
        raise DefinitionError(f"{label}: a timer handler takes a Context, states, and optionally a Timer")
    _check_return_type(label, hints.get("return"))
    states = tuple(item for item in order if isinstance(item, StateDeclaration))
    key_type, reply_type = typing.get_args(context) or (Any, Any)
    return HandlerSignature(
        label=label,
        states=states,
        event_type=event_type,
        key_type=key_type,
        reply_type=reply_type,
        call=_reordered(handler, order),
    )


def _is_context(annotation: Any) -> bool:
    return (typing.get_origin(annotation) or annotation) is Context


def check_key_type(label: str, annotated: Any, key_type: Any) -> None:
    """DefinitionError: the K of a handler's `Context[K]` is not the service's key type."""
    if not types_overlap(key_type, annotated):
        raise DefinitionError(
            f"{label} takes a Context[{type_name(annotated)}], but its service's keys are of {type_name(key_type)}: "
            f"write Context[{type_name(key_type)}], or declare the service with key_type={type_name(annotated)}"
        )


def _name(handler: Callable[..., Any]) -> str:
    return getattr(handler, "__name__", "handler")


def _check_function(label: str, handler: Callable[..., Any]) -> None:
    """A handler is a `def` or an `async def`. The values that a generator yields (as a Faust agent may) would be lost,
    and the coroutine from a plain wrapper around an `async def` would never be awaited."""
    if not callable(handler):
        raise DefinitionError(f"{label} is no function: write 'def {_name(handler)}(ctx, event)' or an 'async def'")
    function = inspect.unwrap(handler)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{label} yields, but values that a handler yields are lost: write ctx.emit(...)")
    if wraps_async(handler):
        raise DefinitionError(
            f"{label} is a plain function around an async one, whose coroutine would never be awaited: write the "
            f"wrapper as 'async def' and await the handler in it"
        )


def _refuse_default(label: str, state: str, default: Any) -> None:
    """The default of a parameter would be ignored: handlers always get their states."""
    raise DefinitionError(
        f"{label}: declare the default of state {state!r} in its annotation: "
        f"Annotated[ValueState[...], Default({default!r})]"
    )


def _check_return_type(label: str, return_type: Any) -> None:
    """A handler's result would be lost."""
    if return_type not in (None, type(None), Any, typing.NoReturn, typing.Never):
        raise DefinitionError(
            f"{label} returns {type_name(return_type)}, but the result of a handler is lost: emit it with "
            f"ctx.emit(...) or reply to a message with ctx.reply(...), and write '-> None'"
        )


def _hints(handler: Any, names: Mapping[str, Any], label: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(handler, localns=dict(names), include_extras=True)
    except (NameError, TypeError) as error:
        raise DefinitionError(f"{label}: an annotation cannot be resolved: {error}") from error


def _reordered(handler: Callable[..., Any], order: list[int | StateDeclaration]) -> Callable[..., Any]:
    """The handler itself if its parameters are in the usual order, so that the usual case costs no extra call."""
    if [item for item in order if isinstance(item, int)] == [0, 1] and order[:2] == [0, 1]:
        return handler
    indexes: list[int] = []
    states = 2
    for item in order:
        if isinstance(item, int):
            indexes.append(item)
        else:
            indexes.append(states)
            states += 1
    return ReorderedHandler(handler, indexes)


def read_class_states(cls: type, names: Mapping[str, Any]) -> tuple[StateDeclaration, ...]:
    """The states that a ProcessFunction declares as annotated attributes, including inherited ones."""
    hints = _hints(cls, names, cls.__qualname__)
    declared = [declare(name, annotation) for name, annotation in hints.items()]
    states = tuple(declaration for declaration in declared if declaration is not None)
    for state in states:
        if hasattr(cls, state.name):
            _refuse_default(cls.__qualname__, state.name, getattr(cls, state.name))
    return states


def check_method(cls: type, name: str, names: Mapping[str, Any], *, argument: str, key_type: Any) -> None:
    """DefinitionError: a handler method of a ProcessFunction has other parameters than the engine passes, returns
    something, or expects another key type."""
    method, label = getattr(cls, name), f"{cls.__qualname__}.{name}"
    _check_function(label, method)
    try:
        inspect.signature(method).bind("self", "ctx", argument)
    except TypeError as error:
        raise DefinitionError(
            f"{label} must be: def {name}(self, ctx, {argument}), or the same as an 'async def'. Declare its states as "
            f"annotated attributes of the class"
        ) from error
    hints = _hints(method, names, label)
    _check_return_type(label, hints.get("return"))
    for annotation in hints.values():
        if _is_context(annotation) and typing.get_args(annotation):
            check_key_type(label, typing.get_args(annotation)[0], key_type)

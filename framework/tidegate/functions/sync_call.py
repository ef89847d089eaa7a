"""An async function that awaits nothing, as the plain function that it is but for one word.

Most handlers await nothing. The coroutine that a call of one makes is asked once and thrown away, which takes 0.15 µs:
a twentieth of what a simple service needs for an event. What such a function is compiled to is a plain function behind
two instructions that make the coroutine; `straight` copies it without them. Where it does not look exactly like that,
because it does await something or this is another Python, there is no copy, and the function is called as it is.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

__all__ = ("straight",)

_TRIED: Final = ((3, 11), (3, 12), (3, 13))
"""The versions of CPython whose instructions are known to be these."""
_WAITING: Final = frozenset(
    ("ASYNC_GEN_WRAP", "BEFORE_ASYNC_WITH", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE", "SEND", "YIELD_VALUE")
)
_BEGINNING: Final = ["RETURN_GENERATOR", "POP_TOP", "RESUME"]


def straight(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """A function that does at once what the coroutine of this one would do. None: it may have to wait, or nobody
    knows."""
    if isinstance(function, MethodType):
        plain = straight(function.__func__)
        return None if plain is None else MethodType(plain, function.__self__)
    code = _without_coroutine(function.__code__) if isinstance(function, FunctionType) else None
    if code is None:
        return None
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    return copy


@cache
def _without_coroutine(code: CodeType) -> CodeType | None:
    known = sys.implementation.name == "cpython" and sys.version_info[:2] in _TRIED
    if not known or not code.co_flags & inspect.CO_COROUTINE:
        return None
    steps = list(dis.get_instructions(code))
    names = [step.opname for step in steps]
    first = names.index(_BEGINNING[0]) if names.count(_BEGINNING[0]) == 1 else len(names)
    if names[first : first + 3] != _BEGINNING or not _WAITING.isdisjoint(names):
        return None
    start, end = steps[first].offset, steps[first + 2].offset
    nothing = bytes((dis.opmap["NOP"], 0)) * ((end - start) // 2)
    raw = code.co_code
    return code.replace(co_code=raw[:start] + nothing + raw[end:], co_flags=code.co_flags & ~inspect.CO_COROUTINE)

"""Tidegate: keyed, durable, exactly-once services as async functions on a partitioned log."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.app import App, Topic
    from tidegate.errors import ActorError, AskTimeoutError, IdempotencyError, MessageFailedError, RejectedError
    from tidegate.functions.context import Context, Origin, TaskInfo, Timer, Timers
    from tidegate.functions.messages import Posted, on
    from tidegate.functions.migrations import migration
    from tidegate.functions.policies import DEAD_LETTER, SKIP, STOP, ErrorPolicy, retry
    from tidegate.functions.process import ProcessFunction
    from tidegate.functions.service import Service
    from tidegate.state.kinds import (
        TTL,
        Aggregate,
        AggregateFunction,
        AggregatingState,
        Default,
        ListState,
        MapState,
        OperatorState,
        Queryable,
        Redistribute,
        Reduce,
        ReducingState,
        ValueState,
        Version,
    )
    from tidegate.time.clock import MAX_TIME, MIN_TIME
    from tidegate.time.sources import BrokerTime, EventTime, IngestionTime, ProcessingTime, TimeSource
    from tidegate.time.watermarks import (
        BoundedOutOfOrderness,
        Monotonic,
        Punctuated,
        WatermarkGenerator,
        WatermarkStrategy,
    )

# Where each public name lives. They are loaded when first used: importing Faust alone takes about a second, and many
# who import this package need only a part of it.
_HOMES = {
    "tidegate.app": ("App", "Topic"),
    "tidegate.errors": (
        "ActorError",
        "AskTimeoutError",
        "IdempotencyError",
        "MessageFailedError",
        "RejectedError",
    ),
    "tidegate.functions.context": ("Context", "Origin", "TaskInfo", "Timer", "Timers"),
    "tidegate.functions.messages": ("Posted", "on"),
    "tidegate.functions.migrations": ("migration",),
    "tidegate.functions.policies": ("DEAD_LETTER", "SKIP", "STOP", "ErrorPolicy", "retry"),
    "tidegate.functions.process": ("ProcessFunction",),
    "tidegate.functions.service": ("Service",),
    "tidegate.state.kinds": (
        "TTL",
        "Aggregate",
        "AggregateFunction",
        "AggregatingState",
        "Default",
        "ListState",
        "MapState",
        "OperatorState",
        "Queryable",
        "Redistribute",
        "Reduce",
        "ReducingState",
        "ValueState",
        "Version",
    ),
    "tidegate.time.clock": ("MAX_TIME", "MIN_TIME"),
    "tidegate.time.sources": ("BrokerTime", "EventTime", "IngestionTime", "ProcessingTime", "TimeSource"),
    "tidegate.time.watermarks": (
        "BoundedOutOfOrderness",
        "Monotonic",
        "Punctuated",
        "WatermarkGenerator",
        "WatermarkStrategy",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = (
    "DEAD_LETTER",
    "MAX_TIME",
    "MIN_TIME",
    "SKIP",
    "STOP",
    "TTL",
    "ActorError",
    "Aggregate",
    "AggregateFunction",
    "AggregatingState",
    "App",
    "AskTimeoutError",
    "BoundedOutOfOrderness",
    "BrokerTime",
    "Context",
    "Default",
    "ErrorPolicy",
    "EventTime",
    "IdempotencyError",
    "IngestionTime",
    "ListState",
    "MapState",
    "MessageFailedError",
    "Monotonic",
    "OperatorState",
    "Origin",
    "Posted",
    "ProcessFunction",
    "ProcessingTime",
    "Punctuated",
    "Queryable",
    "Redistribute",
    "Reduce",
    "ReducingState",
    "RejectedError",
    "Service",
    "TaskInfo",
    "TimeSource",
    "Timer",
    "Timers",
    "Topic",
    "ValueState",
    "Version",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "migration",
    "on",
    "retry",
)

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

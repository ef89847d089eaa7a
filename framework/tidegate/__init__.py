"""Tidegate: keyed, durable, exactly-once services as async functions on a partitioned log."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.app import App, Topic
    from tidegate.functions.context import Context, Origin, TaskInfo, Timer, Timers
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
        Redistribute,
        Reduce,
        ReducingState,
        ValueState,
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
    "tidegate.functions.context": ("Context", "Origin", "TaskInfo", "Timer", "Timers"),
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
        "Redistribute",
        "Reduce",
        "ReducingState",
        "ValueState",
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
    "Aggregate",
    "AggregateFunction",
    "AggregatingState",
    "App",
    "BoundedOutOfOrderness",
    "BrokerTime",
    "Context",
    "Default",
    "ErrorPolicy",
    "EventTime",
    "IngestionTime",
    "ListState",
    "MapState",
    "Monotonic",
    "OperatorState",
    "Origin",
    "ProcessFunction",
    "ProcessingTime",
    "Punctuated",
    "Redistribute",
    "Reduce",
    "ReducingState",
    "Service",
    "TaskInfo",
    "TimeSource",
    "Timer",
    "Timers",
    "Topic",
    "ValueState",
    "WatermarkGenerator",
    "WatermarkStrategy",
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

"""Tidegate: keyed, durable, exactly-once services as Python functions on a partitioned log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.lazy import loader

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.errors import ActorError, AskTimeoutError, IdempotencyError, MessageFailedError, RejectedError
    from tidegate.functions.context import Context, Origin, TaskInfo, Timer, Timers
    from tidegate.functions.messages import Posted, Request, on
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
    from tidegate.topics import Topic

# Where each public name lives. They are loaded when first used: many who import this package need only a part of it.
_HOMES = {
    "tidegate.app": ("App",),
    "tidegate.errors": (
        "ActorError",
        "AskTimeoutError",
        "IdempotencyError",
        "MessageFailedError",
        "RejectedError",
    ),
    "tidegate.functions.context": ("Context", "Origin", "TaskInfo", "Timer", "Timers"),
    "tidegate.functions.messages": ("Posted", "Request", "on"),
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
    "tidegate.topics": ("Topic",),
}

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
    "Request",
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

__getattr__ = loader(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)

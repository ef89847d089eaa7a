"""Test support for services: a harness with a manual clock, an in-memory log, fault points."""

from __future__ import annotations

from tidegate.faults import POINTS, InjectedFault, arm, disarm, parse
from tidegate.testing.harness import AppHarness
from tidegate.testing.memory_log import MemoryLog
from tidegate.testing.records import DeadLetter, SentRecord
from tidegate.time.clock import ManualClock

__all__ = (
    "POINTS",
    "AppHarness",
    "DeadLetter",
    "InjectedFault",
    "ManualClock",
    "MemoryLog",
    "SentRecord",
    "arm",
    "disarm",
    "parse",
)

"""The parameters of a run, from the environment; every peer's program reads the same variables."""

from __future__ import annotations

import os
from typing import Any

__all__ = ("BROKER", "CAMPAIGNS", "GUARANTEE", "ID", "INPUT", "OUTPUT", "PARTITIONS")

BROKER = os.environ.get("BENCH_BROKER", "127.0.0.1:9092")
ID = os.environ.get("BENCH_ID", "bench")
INPUT = os.environ.get("BENCH_INPUT", "likes")
OUTPUT = os.environ.get("BENCH_OUTPUT", "counts")
PARTITIONS = int(os.environ.get("BENCH_PARTITIONS", "4"))
CAMPAIGNS = os.environ.get("BENCH_CAMPAIGNS", "")
GUARANTEE: Any = os.environ.get("BENCH_GUARANTEE", "exactly_once")

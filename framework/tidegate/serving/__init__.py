"""Queries of a running worker: committed state, changes, topics, status. The HTTP API is built on it.

A worker answers for the tasks that it runs; for other tasks it names the worker that owns them.
"""

from __future__ import annotations

from tidegate.query.json_values import json_key, parse_key
from tidegate.query.key_scan import KeyEntry, KeyPage, KeyRange, after_key
from tidegate.serving.as_of import AsOfView, CheckpointProgress
from tidegate.serving.catalogue import Checkpoint
from tidegate.serving.change_feed import ChangeFeed, KeyChange, wait_for_changes
from tidegate.serving.facade import ActorState, QueryableState, WorkerFacade
from tidegate.serving.idempotency import WriteResult
from tidegate.serving.ingest import SendResult
from tidegate.serving.position_tokens import Position, merge, parse_position
from tidegate.serving.status import TaskSummary, WorkerSummary
from tidegate.serving.tasks import ReadCommit

__all__ = (
    "ActorState",
    "AsOfView",
    "ChangeFeed",
    "Checkpoint",
    "CheckpointProgress",
    "KeyChange",
    "KeyEntry",
    "KeyPage",
    "KeyRange",
    "Position",
    "QueryableState",
    "ReadCommit",
    "SendResult",
    "TaskSummary",
    "WorkerFacade",
    "WorkerSummary",
    "WriteResult",
    "after_key",
    "json_key",
    "merge",
    "parse_key",
    "parse_position",
    "wait_for_changes",
)

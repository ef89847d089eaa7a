"""What a running worker can be asked by whoever serves it to others: committed state, changes, topics, status.

It answers for the tasks that run here; for others it knows which worker to ask.
"""

from __future__ import annotations

from tidegate.query.json_values import json_key, parse_key
from tidegate.query.key_scan import Item, KeyPage, KeyRange, after_key
from tidegate.serving.as_of import CheckpointProgress, Past
from tidegate.serving.catalogue import Checkpoint
from tidegate.serving.change_feed import Changed, ChangeFeed, wait_for_news
from tidegate.serving.facade import Actor, StateOf, WorkerFacade
from tidegate.serving.idempotency import Done
from tidegate.serving.ingest import Sent
from tidegate.serving.position_tokens import Position, merge, parse_position
from tidegate.serving.status import TaskSummary, WorkerSummary
from tidegate.serving.tasks import Reached

__all__ = (
    "Actor",
    "ChangeFeed",
    "Changed",
    "Checkpoint",
    "CheckpointProgress",
    "Done",
    "Item",
    "KeyPage",
    "KeyRange",
    "Past",
    "Position",
    "Reached",
    "Sent",
    "StateOf",
    "TaskSummary",
    "WorkerFacade",
    "WorkerSummary",
    "after_key",
    "json_key",
    "merge",
    "parse_key",
    "parse_position",
    "wait_for_news",
)

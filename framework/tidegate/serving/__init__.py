"""What a running worker can be asked by whoever serves it to others: committed state, changes, topics, status.

It answers for the tasks that run here; for others it knows which worker to ask.
"""

from __future__ import annotations

from tidegate.query.scanning import Item, KeyPage, KeyRange, after_key
from tidegate.query.values import json_key, parse_key
from tidegate.serving.catalogue import Checkpoint
from tidegate.serving.history import CheckpointProgress, Past
from tidegate.serving.positions import Position, merge, parse_position
from tidegate.serving.requests import Done
from tidegate.serving.sending import Sent
from tidegate.serving.status import TaskState, WorkerState
from tidegate.serving.tasks import Reached
from tidegate.serving.watching import Changed, Watcher, wait_for_news
from tidegate.serving.worker import Actor, Serving, StateOf

__all__ = (
    "Actor",
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
    "Serving",
    "StateOf",
    "TaskState",
    "Watcher",
    "WorkerState",
    "after_key",
    "json_key",
    "merge",
    "parse_key",
    "parse_position",
    "wait_for_news",
)

"""Commit listeners: called in this process with the changes of each commit, once the local store has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidegate.state.base import Change

__all__ = ("CommitListeners", "Listener")

logger = logging.getLogger(__name__)

Listener = Callable[[str, Iterable[Change]], None]
"""Called with the task and its changes. The task's store contains exactly this commit during the call, so a listener
must return quickly."""


class CommitListeners:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Add a listener. Returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def notify(self, task: str, changes: Iterable[Change]) -> None:
        """An error of a listener is logged: the commit is already durable."""
        for listener in tuple(self._listeners):
            try:
                listener(task, changes)
            except Exception:
                logger.exception("a commit listener of %s failed", task)

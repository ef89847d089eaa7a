"""Telling others in this process what tasks have committed, as soon as the local store has it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidegate.state.base import Change

__all__ = ("CommitListeners", "Listener")

logger = logging.getLogger(__name__)

Listener = Callable[[str, Iterable[Change]], None]
"""Gets the task and what has changed. The task's store shows exactly this commit while it runs: it must be quick."""


class CommitListeners:
    """Those who want to know. A commit costs nothing while there is nobody."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call this at every commit, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, task: str, changes: Iterable[Change]) -> None:
        """A listener that fails does not fail the commit, which has happened."""
        for listener in tuple(self._listeners):
            try:
                listener(task, changes)
            except Exception:
                logger.exception("a listener to the commits of %s failed", task)

"""The lifecycle of a service's function in one task: its instance, its open and close hooks, its threads."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tidegate.engine.runtime.handler_threads import HandlerThreads, ThreadPools
from tidegate.functions.context import TaskInfo
from tidegate.functions.declaration.handler_call import is_async
from tidegate.functions.definition import ServiceDefinition

__all__ = ("FunctionLifecycle",)

logger = logging.getLogger(__name__)


class FunctionLifecycle:
    def __init__(self, definition: ServiceDefinition, info: TaskInfo, pools: ThreadPools) -> None:
        self._definition, self._info, self._pools = definition, info, pools
        self.instance = copy.copy(definition.prototype)
        """The object of a service that is declared as a class; else None."""
        self.threads: HandlerThreads | None = None
        """The threads of the handlers, from `start` to `stop`; None: handlers run in the event loop."""

    def start(self) -> None:
        threads = self._definition.execution.threads
        if threads is not None:
            self.threads = self._pools.acquire(self._definition.name, threads)

    def stop(self) -> None:
        if self.threads is not None:
            self._pools.release(self._definition.name)
            self.threads = None

    async def open(self) -> None:
        if self.instance is not None:
            await self._run(self.instance.open, self._info)
        elif self._definition.hooks.open is not None:
            await self._run(self._definition.hooks.open, self._info)

    async def close(self) -> None:
        """The last commit is done: a failure here is only logged."""
        try:
            if self.instance is not None:
                await self._run(self.instance.close)
            elif self._definition.hooks.close is not None:
                await self._run(self._definition.hooks.close, self._info)
        except Exception as error:
            task = f"{self._info.service}.{self._info.number}"
            logger.warning("%s: its close failed: %s: %s", task, type(error).__name__, error)

    async def _run(self, hook: Callable[..., Any], *arguments: Any) -> None:
        """If handlers run in threads, a hook that is a plain function may block, too. It gets its own thread, since all
        threads of the handlers may be busy."""
        if self.threads is None or is_async(hook):
            result = hook(*arguments)
            if inspect.isawaitable(result):
                await result
            return
        thread = HandlerThreads(f"{self._definition.name}-{hook.__name__}", 1)
        try:
            await thread.run(partial(hook, *arguments))
        finally:
            thread.close()

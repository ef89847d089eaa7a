"""Starts, awaits and stops an app in this process, together with its Faust app if it uses Faust.

What this needs is imported when it is used: to declare an app costs neither the engine nor Faust."""

from __future__ import annotations

import abc
import functools
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tidegate.app_options import missing_attribute
from tidegate.time.clock import Duration
from tidegate.topics import Topic

if TYPE_CHECKING:
    from tidegate.client.remote_actors import AppMessenger
    from tidegate.faust_host.hosted_app import HostedApp
    from tidegate.faust_host.types import AgentFun, AgentT, AppCommand, ChannelT, SinkT, SupervisorStrategyT
    from tidegate.host.app_definition import AppDefinition
    from tidegate.host.engine_runner import EngineRunner
    from tidegate.host.host import Host
    from tidegate.host.topic_publisher import AppPublisher

__all__ = ("AppProcess",)

T = TypeVar("T")
TaskFun = TypeVar("TaskFun", bound=Callable[..., Awaitable[Any]])


class AppProcess(abc.ABC):
    """The part of an App that runs its services."""

    def __init__(self, faust_options: Mapping[str, Any]) -> None:
        self._host: Host | None = None
        self._runner: EngineRunner | None = None
        self._faust: HostedApp | None = None
        self._faust_options = faust_options
        if faust_options:  # a misspelt one is refused where it is declared
            self._make_faust()
        elif "faust.cli.base" in sys.modules:  # it may be Faust's command line that imports the app
            from tidegate.faust_host.cli import find_hosted_apps

            find_hosted_apps()

    @property
    @abc.abstractmethod
    def id(self) -> str:
        """The name of the app, of its data and its consumer group, and the prefix of its internal topics."""

    @property
    @abc.abstractmethod
    def topics(self) -> Mapping[str, Topic[Any]]:
        """The declared topics, by name."""

    @abc.abstractmethod
    def define(self) -> AppDefinition:
        """The declarations so far, for a worker."""

    # -- running -----------------------------------------------------------------------------------------------------
    @property
    def host(self) -> Host:
        """The app in this process: its log, its engine. Tests may set one before the start."""
        if self._host is None:
            from tidegate.host.host import Host

            self._host = Host(self.define)
        return self._host

    @host.setter
    def host(self, host: Host) -> None:
        self._host = host

    async def start(self) -> None:
        """Run the services and `app.faust` in this process. Returns when the tasks are open."""
        if self._faust is not None:
            await self._faust.start()
            return
        from tidegate.host.engine_runner import EngineRunner

        self._runner = EngineRunner(self.host)
        await self._runner.start()

    async def wait(self) -> None:
        """Wait until a bounded run ends or the app fails; see `failure`."""
        if self._runner is not None:
            await self._runner.wait()
        elif self._faust is not None:
            await self._faust.wait_first(self.host.finished.wait())

    async def stop(self) -> None:
        """Wait for handlers, commit the finished ones, close the tasks and the log."""
        if self._runner is not None:
            await self._runner.stop()
        elif self._faust is not None and self._faust.started:
            await self._faust.stop()

    @property
    def failure(self) -> BaseException | None:
        """The exception of the service or agent that failed, or None."""
        if self._runner is not None:
            return self._runner.failure
        return None if self._faust is None else self._faust.crash_reason

    def connected(self) -> AbstractAsyncContextManager[None]:
        """Send to this app's services from a process that does not run them: `async with app.connected(): await
        service.ask(...)`. Without it, each call opens a connection. In a worker it has no effect."""
        return self._messenger.connected()

    @functools.cached_property
    def _messenger(self) -> AppMessenger:
        from tidegate.client.remote_actors import AppMessenger

        return AppMessenger(lambda: self.host)

    @functools.cached_property
    def _publisher(self) -> AppPublisher:
        from tidegate.host.topic_publisher import AppPublisher

        return AppPublisher(lambda: self.host, loaded=lambda: self._faust, faust=lambda: self.faust)

    # -- Faust -------------------------------------------------------------------------------------------------------
    @property
    def faust(self) -> HostedApp:
        """The Faust app, which runs in the same worker as the services. Its first use creates it and imports Faust."""
        return self._faust or self._make_faust()

    def _make_faust(self) -> HostedApp:
        from tidegate.faust_host.hosted_app import HostedApp

        self._faust = HostedApp(self, self._faust_options)
        return self._faust

    def agent(
        self,
        channel: str | Topic[T] | ChannelT[T] | None = None,
        *,
        name: str | None = None,
        concurrency: int = 1,
        sink: Iterable[SinkT | Topic[Any]] | None = None,
        supervisor_strategy: type[SupervisorStrategyT] | None = None,
        isolated_partitions: bool = False,
        use_reply_headers: bool = True,
    ) -> Callable[[AgentFun[T]], AgentT[T]]:
        """Make an async function one of Faust's agents. It needs a Kafka broker."""
        made: Callable[[AgentFun[T]], AgentT[T]] = self.faust.agent(
            channel,
            name=name,
            concurrency=concurrency,
            sink=sink,
            supervisor_strategy=supervisor_strategy,
            isolated_partitions=isolated_partitions,
            use_reply_headers=use_reply_headers,
        )
        return made

    def timer(
        self, interval: Duration, *, on_leader: bool = False, name: str | None = None
    ) -> Callable[[TaskFun], TaskFun]:
        """Call an async function at an interval, by Faust. on_leader: in one worker only."""
        made: Callable[[TaskFun], TaskFun] = self.faust.timer(interval, on_leader=on_leader, name=name)
        return made

    def crontab(
        self, cron_format: str, *, timezone: tzinfo | None = None, on_leader: bool = False
    ) -> Callable[[TaskFun], TaskFun]:
        """Call an async function at the times of a cron expression, by Faust."""
        made: Callable[[TaskFun], TaskFun] = self.faust.crontab(cron_format, timezone=timezone, on_leader=on_leader)
        return made

    @overload
    def task(self, fun: TaskFun, /) -> TaskFun: ...

    @overload
    def task(self, /, *, on_leader: bool = False) -> Callable[[TaskFun], TaskFun]: ...

    def task(self, fun: Any = None, /, *, on_leader: bool = False) -> Any:
        """Call an async function once after the worker has started, by Faust."""
        return self.faust.task(fun, on_leader=on_leader)

    def command(self, *options: Any) -> Callable[[Callable[..., Awaitable[Any]]], type[AppCommand]]:
        """Make an async function a command of `faust -A`. options: click's."""
        return self.faust.command(*options)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property of its own has failed: raise that again
            raise AttributeError(missing_attribute(name), name=name, obj=self)

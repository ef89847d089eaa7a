"""The Faust app of a Tidegate app: the hooks into Faust, and the changes for its agents, tables and timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

import faust
from faust.streams import current_event

from tidegate.client.log_access import LogAccess
from tidegate.directories import on_kafka
from tidegate.errors import DefinitionError, UsageError
from tidegate.faust_host.boot import Boot, EngineService
from tidegate.faust_host.cli import find_hosted_apps
from tidegate.faust_host.config import FAUST_DEFAULTS, check_options, connect_faust
from tidegate.faust_host.shared_topic import SharedTopic
from tidegate.faust_host.supervision import StopOnFailure
from tidegate.faust_host.transport import Consumer, Transport
from tidegate.functions.topics import TopicDefinition, TopicHeaders
from tidegate.host.app_definition import AppDefinition
from tidegate.host.host import Host
from tidegate.settings import Settings
from tidegate.time.clock import Instant
from tidegate.topics import Topic

__all__ = ("HostedApp", "HostingApp")

logger = logging.getLogger("tidegate.faust")


class HostingApp(Protocol):
    """The App whose Faust app this is."""

    @property
    def id(self) -> str: ...
    @property
    def host(self) -> Host: ...
    @property
    def topics(self) -> Mapping[str, Topic[Any]]: ...
    def define(self) -> AppDefinition: ...


class HostedApp(faust.App):
    """A `faust.App`. Its broker is Tidegate's; the topics that the app declares are known to it, too."""

    BootStrategy = Boot

    def __init__(self, hosting: HostingApp, options: Mapping[str, Any]) -> None:
        check_options(hosting.id, options)
        self._hosting = hosting
        self._shared: dict[str, SharedTopic] = {}
        self.leads = False
        """Whether there are tasks that run in one worker only: @app.timer(..., on_leader=True)."""
        self.given_to_faust = set(options)
        """Options that were given to Faust itself, which override our settings."""
        find_hosted_apps()
        super().__init__(hosting.id, **{**FAUST_DEFAULTS, **options})

    @property
    def host(self) -> Host:
        return self._hosting.host

    # -- starting ----------------------------------------------------------------------------------------------------
    @cached_property
    def engine_service(self) -> EngineService:
        return EngineService(self, loop=self.loop, beacon=self.beacon)

    def connect_faust(self) -> Settings:
        """Connect Faust's clients to our broker."""
        settings = self._hosting.define().resolve(self.host.flags).settings
        connect_faust(self.conf, settings, self.given_to_faust)
        self.transport.url = self.conf.broker_consumer  # an agent's declaration has made it
        return settings

    def _new_transport(self) -> Any:
        return Transport(self.conf.broker_consumer, self)

    @cached_property
    def _reply_consumer(self) -> Any:
        from tidegate.faust_host.reply_consumer import ReplyConsumer

        return ReplyConsumer(self, loop=self.loop, beacon=self.beacon)

    def _load_settings_from_source(self, source: Any, *, silent: bool = False) -> Mapping[str, Any]:
        found = super()._load_settings_from_source(source, silent=silent)
        self.given_to_faust.update(found)
        return found

    async def declare_topics(self) -> None:
        """Create the topics that services and agents share; a worker has done so when it runs."""
        if not self.host.running:
            access = LogAccess(self._hosting.define(), self.host.flags)
            async with access.opened():
                await access.create_topics()

    async def on_first_start(self) -> None:
        """Faust would create directories here; they are created once the worker's data directory is known."""

    async def on_shutdown(self) -> None:
        await super().on_shutdown()
        if isinstance(self._consumer, Consumer):
            self._consumer.release()

    # -- topics ------------------------------------------------------------------------------------------------------
    def topic(self, *topics: Any, **options: Any) -> Any:
        """A topic for Faust. For a declared topic, or its name, it uses the codecs of services; any other topic belongs
        to Faust only."""
        names = tuple(topic.name if isinstance(topic, Topic) else topic for topic in topics)
        declared = self._hosting.topics.get(names[0]) if len(names) == 1 else None
        if declared is None:
            return super().topic(*names, **options)
        # Faust creates internal topics, some of them at run time, by name and with options of its own.
        if options and names == topics and not (options.get("internal") or self.host.running):
            raise DefinitionError(
                f"topic {names[0]!r} is declared by app.topic(...), so it accepts no Faust options: "
                f"{', '.join(options)}"
            )
        return self.shared(declared.definition)

    def shared(self, definition: TopicDefinition) -> SharedTopic:
        """A declared topic, for Faust."""
        known = self._shared.get(definition.name)
        if known is None:
            known = self._shared[definition.name] = SharedTopic(self, definition=definition)
        return known

    def agent(self, channel: Any = None, *, sink: Iterable[Any] | None = None, **options: Any) -> Any:
        sinks = None if sink is None else [self._as_fausts(each) for each in sink]
        return super().agent(self._as_fausts(channel), sink=sinks, **options)

    def _as_fausts(self, channel: Any) -> Any:
        return self.shared(channel.definition) if isinstance(channel, Topic) else channel

    # -- sending -----------------------------------------------------------------------------------------------------
    def in_agent(self) -> bool:
        """Whether an agent handles an event here."""
        return current_event() is not None

    async def send_shared(
        self,
        topic: TopicDefinition,
        value: Any,
        *,
        key: Any,
        timestamp: Instant | float | None,
        headers: TopicHeaders,
    ) -> int | None:
        """Through Faust's producer. In an agent it returns None as soon as the record is buffered, elsewhere the
        position after the record when it is there."""
        buffered = await self.shared(topic).send(key=key, value=value, timestamp=timestamp, headers=headers)
        if self.in_agent():
            return None
        written = await buffered
        return int(written.offset) + 1

    async def send(self, channel: Any, *arguments: Any, **options: Any) -> Any:
        return await super().send(self._as_fausts(channel), *arguments, **options)

    def require_broker(self, what: str) -> None:
        """Raise UsageError without a Kafka broker, which Faust's producer needs."""
        if not on_kafka(self.host.settings if self.host.running else self.connect_faust()):
            raise UsageError(f"{what}: only Faust can do this, on a Kafka broker")

    # -- agents, and what a leader does ------------------------------------------------------------------------------
    async def _consumer_wait_empty(self, consumer: Any, logger: Any) -> None:
        """Wait for busy agents. An agent that does not finish in time handles its event again after the next start."""
        waiting = asyncio.ensure_future(super()._consumer_wait_empty(consumer, logger))
        seconds = self.host.settings.drain_seconds if self.should_stop and self.host.running else None
        done, _ = await asyncio.wait({waiting}, timeout=seconds)
        if done:
            waiting.result()
        else:
            await consumer.finish()
            waiting.add_done_callback(lambda _: waiting.exception())  # it ends when the consumer stops, and not before

    async def _on_agent_error(self, agent: Any, exc: BaseException) -> None:
        await super()._on_agent_error(agent, exc)
        if (agent.supervisor_strategy or self.conf.agent_supervisor) is not StopOnFailure:
            logger.error("agent %s failed", agent.name, exc_info=exc)

    def task(self, fun: Any = None, *, on_leader: bool = False, **options: Any) -> Any:  # type: ignore[override]
        self.leads |= on_leader
        return super().task(fun, on_leader=on_leader, **options)

    def timer(self, interval: Any, on_leader: bool = False, **options: Any) -> Any:  # type: ignore[override]
        self.leads |= on_leader
        return super().timer(interval, on_leader=on_leader, **options)

    def crontab(self, cron_format: str, *, on_leader: bool = False, **options: Any) -> Any:  # type: ignore[override]
        self.leads |= on_leader
        return super().crontab(cron_format, on_leader=on_leader, **options)

    def is_leader(self) -> bool:
        """An embedded log has one worker."""
        return super().is_leader() if self.boot_strategy.enable_kafka else True

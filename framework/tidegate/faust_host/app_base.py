"""An app as Faust sees it: the seams at which it lets us in; its agents, tables and timers beside the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import faust

from tidegate.client.log_access import Access
from tidegate.faust_host.boot import Boot, EngineService
from tidegate.faust_host.config import FAUST_DEFAULTS, connect_faust
from tidegate.faust_host.supervision import StopOnFailure
from tidegate.host.host import AppDefinition, Host
from tidegate.settings import Settings

__all__ = ("HostedApp",)

logger = logging.getLogger("tidegate.faust")


class HostedApp(faust.App):
    BootStrategy = Boot

    def __init__(self, id: str, **options: Any) -> None:
        self.host = Host(self.define)
        self.leads = False
        """Whether there are tasks that one worker does for all: @app.timer(..., on_leader=True)."""
        self.given_to_faust = set(options)
        """Options that were said to Faust itself, and so hold whatever our settings say."""
        super().__init__(id, **{**FAUST_DEFAULTS, **options})

    def define(self) -> AppDefinition:
        """What was declared so far."""
        raise NotImplementedError

    # -- starting ----------------------------------------------------------------------------------------------------
    @cached_property
    def engine_service(self) -> EngineService:
        return EngineService(self, loop=self.loop, beacon=self.beacon)

    def connect_faust(self) -> Settings:
        """Let Faust's clients go where ours go."""
        settings = self.define().resolve(self.host.flags).settings
        connect_faust(self.conf, settings, self.given_to_faust)
        self.transport.url = self.conf.broker_consumer  # an agent's declaration has made it
        return settings

    def _new_transport(self) -> Any:
        from tidegate.faust_host.transport import Transport

        return Transport(self.conf.broker_consumer, self)

    @cached_property
    def _reply_consumer(self) -> Any:
        from tidegate.faust_host.replies import ReplyConsumer

        return ReplyConsumer(self, loop=self.loop, beacon=self.beacon)

    def _load_settings_from_source(self, source: Any, *, silent: bool = False) -> Mapping[str, Any]:
        found = super()._load_settings_from_source(source, silent=silent)
        self.given_to_faust.update(found)
        return found

    async def declare_topics(self) -> None:
        """Create the topics that services and agents share; a worker has done so when it runs."""
        if not self.host.running:
            access = Access(self.define(), self.host.flags)
            async with access.opened():
                await access.create_topics()

    async def on_first_start(self) -> None:
        """Faust would make directories here; they are made when it is known where this worker keeps its things."""

    # -- agents, and what a leader does ------------------------------------------------------------------------------
    async def _consumer_wait_empty(self, consumer: Any, logger: Any) -> None:
        """For agents that are busy. One that does not end in time handles its event again after the next start."""
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

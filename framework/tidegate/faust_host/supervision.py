"""The supervision of agents that fail."""

from __future__ import annotations

import asyncio

from mode import OneForOneSupervisor, ServiceT

__all__ = ("StopOnFailure",)


class StopOnFailure(OneForOneSupervisor):
    """The worker stops with the agent's exception, as it does for a service whose errors are not handled.

    Faust's own default restarts the agent after the event on which it failed, and so drops that event:
    App(..., faust={"agent_supervisor": "mode.OneForOneSupervisor"}) does that here, too."""

    async def restart_service(self, service: ServiceT) -> None:
        reason = service.crash_reason
        if reason is None or isinstance(reason, asyncio.CancelledError):  # by a rebalance
            await super().restart_service(service)
        else:
            await self.crash(reason)

"""`tidegate reset`: shows what will be deleted, asks for confirmation, and has the owner of the log perform the
reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tidegate.client.log_access import LogAccess
from tidegate.host.app_definition import AppDefinition
from tidegate.owner_rpc.protocol import Reset
from tidegate.owner_rpc.reset import topics_to_empty
from tidegate_app.output import note

__all__ = ("ResetCommand",)


class ResetCommand:
    def __init__(self, definition: AppDefinition, flags: Mapping[str, Any], *, outputs: bool, everything: bool) -> None:
        self._access = LogAccess(definition, flags)
        self._outputs, self._everything = outputs, everything

    async def run(self, *, ask: bool) -> None:
        access = self._access
        if not access.exists:
            note(f"There is no data in {access.where}; nothing to reset.")
            return
        async with access.opened() as operations:
            await access.check_reset()
            if ask:
                await self._ask()
            done = await operations.reset(Reset(outputs=self._outputs, everything=self._everything))
        note(f"Reset {access.definition.id}: emptied {', '.join(done.emptied) or 'nothing'}.")

    async def _ask(self) -> None:
        plan = await self._access.plan()
        existing = {topic.name for topic in await (await self._access.operations()).topics()}
        emptied = topics_to_empty(plan, existing, outputs=self._outputs, everything=self._everything)
        who = self._access.owner or "no worker runs"
        note(f"This deletes all state, timers and positions of {plan.app} in {self._access.where} ({who}),")
        note(f"and empties these topics: {', '.join(sorted(emptied)) or 'none'}.")
        again = {topic.name for service in plan.services.values() for topic in service.outputs.values()} - emptied
        if again:
            note(
                f"These keep their records and get them once more: {', '.join(sorted(again))} (--outputs empties them)."
            )
        click.confirm("Continue?", abort=True, err=True)

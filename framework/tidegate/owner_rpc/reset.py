"""Resetting an app: the topics to empty, and the order of the removal.

1. Remove the local stores. After a crash here they are rebuilt from the changelogs.
2. Delete the topics, in one write to the log. From here on the app is reset.
3. Create them again, and append the run's record: the run id does not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from tidegate.engine.topology.plan import Plan, dead_letter_topic
from tidegate.engine.topology.run import FIRST, Run, run_record
from tidegate.errors import PartitionCountError
from tidegate.logs.base import Log

__all__ = ("LocalStores", "reset_app", "topics_of", "topics_to_empty")

_CREATED: Final = (".changelog", ".by-key", ".in-flight", ".dead-letters", ".control", ".mailbox")
"""Suffixes of the topics that Tidegate creates."""


class LocalStores(Protocol):
    def destroy_all(self) -> None: ...


def topics_of(plan: Plan, existing: Iterable[str]) -> set[str]:
    """This app's topics in a shared log: those that its code declares, and those that Tidegate has created for it, also
    for services that were removed from the code.

    Topics that start with `shop.` may belong to an app `shop.eu`, which is recognized by its control topic."""
    existing, stem = set(existing), f"{plan.app}."
    controls = {name for name in existing if name.startswith(stem) and name.endswith(".control")}
    others = tuple(name.removesuffix("control") for name in controls - {plan.control.topic})
    own = (name for name in existing if name.startswith(stem) and not name.startswith(others))
    created = {name for name in own if name.endswith(_CREATED)}
    requests = f"{plan.app}.requests"  # HTTP requests with idempotency keys
    return created | existing & {requests, *(spec.name for spec in plan.specs)}


def topics_to_empty(plan: Plan, existing: Iterable[str], *, outputs: bool, everything: bool) -> set[str]:
    """The topics to empty for a reset; with `outputs` also the output topics, with `everything` all of `existing`, the
    app's topics.

    Topics between services are emptied, too: their senders send the records again, and their readers would process them
    twice. So are mailboxes: their messages are for actors whose state is removed."""
    existing = set(existing)
    if everything:
        return existing
    services = plan.services.values()
    read = {topic.name for service in services for topic in service.topics}
    written = {topic.name for service in services for topic in service.outputs.values()}
    own = {name for name in existing if name.startswith(f"{plan.app}.")}
    wanted = {name for name in own if name.endswith((".changelog", ".by-key", ".in-flight", ".mailbox"))}
    wanted |= {plan.control.topic}
    wanted |= read & written
    if outputs:
        letters = (dead_letter_topic(plan.app, service) for service in services)
        wanted |= written | {topic.name for topic in letters if topic is not None}
    return wanted & existing


async def reset_app(
    plan: Plan, log: Log, stores: LocalStores, *, outputs: bool, everything: bool, shared: bool = False
) -> list[str]:
    """Requires that no task is open and nothing is appended. `shared`: other apps use the log, too. Returns the emptied
    topics."""
    existing = await log.topics()
    own = topics_of(plan, existing) if shared else existing
    emptied = topics_to_empty(plan, own, outputs=outputs, everything=everything)
    for spec in plan.specs:  # check the remaining topics before anything is removed
        known = existing.get(spec.name)
        if known is not None and known.partitions != spec.partitions and spec.name not in emptied:
            raise PartitionCountError(spec.name, known.partitions, spec.partitions)
    stores.destroy_all()
    await log.delete(emptied)
    await log.create(plan.specs)
    await _append_run(plan, log)
    return sorted(emptied)


async def _append_run(plan: Plan, log: Log) -> None:
    """The control topic was emptied: without a record of the run, the app would start its first run."""
    if plan.run.id != FIRST.id:
        writer = await log.writer()
        try:
            await writer.append({plan.control: [run_record(Run(id=plan.run.id), plan.run.started_ms)]})
        finally:
            await writer.close()

"""Starting an app anew: which topics go, and in what order things are removed.

1. Remove the local stores. A crash after this costs nothing: they are rebuilt from the changelogs.
2. Delete the topics, in one write to the log: from here on the app is new.
3. Create them again, empty, and say which run this is: it stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from tidegate.engine.topology.plan import Plan, dead_letter_topic
from tidegate.engine.topology.run import FIRST, Run, run_record
from tidegate.errors import PartitionCountError
from tidegate.logs.base import Log

__all__ = ("Destroyed", "start_anew", "topics_of", "topics_to_empty")

_MADE: Final = (".changelog", ".by-key", ".in-flight", ".dead-letters", ".control", ".mailbox")
"""How the names of topics end that Tidegate makes."""


class Destroyed(Protocol):
    """Local stores."""

    def destroy_all(self) -> None: ...


def topics_of(plan: Plan, existing: Iterable[str]) -> set[str]:
    """Which topics of a log that others use, too, are this app's: those that its code names, and those that Tidegate
    has made for it, also for services that are no more.

    What begins with the name of an app `shop` may be of an app `shop.eu`, which is known by its control topic."""
    existing, stem = set(existing), f"{plan.app}."
    controls = {name for name in existing if name.startswith(stem) and name.endswith(".control")}
    others = tuple(name.removesuffix("control") for name in controls - {plan.control.topic})
    made = {name for name in existing if name.startswith(stem) and name.endswith(_MADE) and not name.startswith(others)}
    noted = f"{plan.app}.requests"  # what was sent over HTTP under idempotency keys
    return made | existing & {noted, *(spec.name for spec in plan.specs)}


def topics_to_empty(plan: Plan, existing: Iterable[str], *, outputs: bool, everything: bool) -> set[str]:
    """What must go for the services to start anew, and on request what they have written, or everything: of the app's
    own topics, which `existing` are.

    Topics between services go, too: their senders fill them again, and their readers would count both. So do mailboxes:
    what lies there was said to actors that are no more."""
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


async def start_anew(
    plan: Plan, log: Log, stores: Destroyed, *, outputs: bool, everything: bool, shared: bool = False
) -> list[str]:
    """While no task is open and nobody appends. `shared`: the log is not the app's alone. Returns the topics that were
    emptied."""
    existing = await log.topics()
    own = topics_of(plan, existing) if shared else existing
    emptied = topics_to_empty(plan, own, outputs=outputs, everything=everything)
    for spec in plan.specs:  # one that stays, and does not fit, must be found before anything is removed
        known = existing.get(spec.name)
        if known is not None and known.partitions != spec.partitions and spec.name not in emptied:
            raise PartitionCountError(spec.name, known.partitions, spec.partitions)
    stores.destroy_all()
    await log.delete(emptied)
    await log.create(plan.specs)
    await _go_on_as(plan, log)
    return sorted(emptied)


async def _go_on_as(plan: Plan, log: Log) -> None:
    """The control topic was emptied: without a record of the run, it would be the first."""
    if plan.run.id != FIRST.id:
        writer = await log.writer()
        try:
            await writer.append({plan.control: [run_record(Run(id=plan.run.id), plan.run.started_ms)]})
        finally:
            await writer.close()

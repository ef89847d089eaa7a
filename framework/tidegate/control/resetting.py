"""Starting an app anew: which topics go, and in what order things are removed.

1. Remove the local stores. A crash after this costs nothing: they are rebuilt from the changelogs.
2. Delete the topics, in one write to the log: from here on the app is new.
3. Create them again, empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.engine.plan import Plan, dead_letter_topic
from tidegate.engine.stores import Stores
from tidegate.errors import PartitionCountError
from tidegate.logs.base import Log

__all__ = ("start_anew", "topics_to_empty")


def topics_to_empty(plan: Plan, existing: Iterable[str], *, outputs: bool, everything: bool) -> set[str]:
    """What must go for the services to start anew, and on request what they have written, or everything.

    Topics between services go, too: their senders fill them again, and their readers would count both."""
    existing = set(existing)
    if everything:
        return existing
    services = plan.services.values()
    read = {topic.name for service in services for topic in service.inputs}
    written = {topic.name for service in services for topic in service.outputs.values()}
    own = {name for name in existing if name.startswith(f"{plan.app}.")}
    wanted = {name for name in own if name.endswith((".changelog", ".by-key"))} | {plan.control.topic}
    wanted |= read & written
    if outputs:
        letters = (dead_letter_topic(plan.app, service) for service in services)
        wanted |= written | {topic.name for topic in letters if topic is not None}
    return wanted & existing


async def start_anew(plan: Plan, log: Log, stores: Stores, *, outputs: bool, everything: bool) -> list[str]:
    """While no task is open and nobody appends. Returns the topics that were emptied."""
    existing = await log.topics()
    emptied = topics_to_empty(plan, existing, outputs=outputs, everything=everything)
    for spec in plan.specs:  # one that stays, and does not fit, must be found before anything is removed
        known = existing.get(spec.name)
        if known is not None and known.partitions != spec.partitions and spec.name not in emptied:
            raise PartitionCountError(spec.name, known.partitions, spec.partitions)
    stores.destroy_all()
    await log.delete(emptied)
    await log.create(plan.specs)
    return sorted(emptied)

"""The final check: whether the outputs are exactly those that follow from the likes.

1. Wait until everything in the log is handled and committed.
2. Fold all likes in the log, including those of earlier runs.
3. Compare the result with the topics `matches` and `notices`, and with the committed state of all inboxes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from examples.tinder_match.app import inbox, likes, matches, notices
from examples.tinder_match.events import Match, Notice
from examples.tinder_match.fold import Expected, Inbox, compare
from tidegate import Topic
from tidegate.engine.topology.plan import Plan
from tidegate.host.host import Host
from tidegate.logs.base import Log, TopicPartition
from tidegate.query.views import ServiceView

__all__ = ("Source", "Summary", "check", "compared", "read_all", "read_inbox", "read_inboxes", "settle")


@dataclass(frozen=True, kw_only=True)
class Summary:
    likes: int
    matches: int
    people: int
    """People with a match."""
    differences: list[str]


class Source(Protocol):
    """The source of the data: a running worker, or a session on its log."""

    @property
    def plan(self) -> Plan: ...
    @property
    def log(self) -> Log: ...

    async def view(self, service: str) -> ServiceView: ...


async def check(host: Host) -> Summary:
    await settle(host)
    return await compared(host)


async def compared(host: Source) -> Summary:
    """Steps 2 and 3."""
    expected = Expected()
    for number in range(host.plan.topics[likes.name].partitions):
        async for like in read_all(host, likes, number):
            expected.add(like)
        expected.remembered.clear()  # all likes of a pair are in one partition: the rest of the state need not be kept
    made: list[Match] = [match async for match in read_all(host, matches)]
    sent: list[Notice] = [notice async for notice in read_all(host, notices)]
    inboxes = await read_inboxes(host)
    differences = compare(expected, made, sent, inboxes)
    return Summary(likes=expected.likes, matches=len(made), people=len(inboxes), differences=differences)


async def settle(host: Host) -> None:
    """Wait until the services have handled and committed all records of the log, including their own outputs."""
    while True:
        tasks = host.tasks.values()
        ends = await host.log.end_offsets(source for task in tasks for source in task.inputs)
        behind = any(input_.position < ends[source] for task in tasks for source, input_ in task.inputs.items())
        if not behind and not any(task.ready or task.uncommitted or task.committing for task in tasks):
            return
        await asyncio.sleep(0.02)


async def read_all(host: Source, topic: Topic[Any], *numbers: int) -> AsyncIterator[Any]:
    """The values of a topic from its start to its current end, partition by partition."""
    definition = host.plan.topics[topic.name]
    for number in numbers or range(definition.partitions):
        source = TopicPartition(topic.name, number)
        end = (await host.log.end_offsets([source]))[source]
        reader = host.log.reader()
        reader.assign(await host.log.start_offsets([source]))
        while reader.position(source) < end:
            for batch in await reader.read(timeout=1.0):
                for record in batch.records:
                    if record.value is not None:
                        yield definition.codec.decode(record.value)
            await asyncio.sleep(0)
        await reader.close()


async def read_inboxes(host: Source) -> dict[str, Inbox]:
    view = await host.view(inbox.name)
    inboxes: dict[str, Inbox] = {}
    async for person, other, at in _entries(view, "matches"):
        inboxes.setdefault(person, Inbox()).matches[other] = at
    async for person, _, unread in _entries(view, "unread"):
        inboxes.setdefault(person, Inbox()).unread = unread
    return inboxes


async def read_inbox(view: ServiceView, person: str) -> Inbox:
    """The inbox of one person."""
    matches = {other: at async for _, other, at in _entries(view, "matches", person.encode())}
    unread = [unread async for _, _, unread in _entries(view, "unread", person.encode())]
    return Inbox(matches, *unread)


async def _entries(view: ServiceView, state: str, key: bytes | None = None) -> AsyncIterator[tuple[str, str, Any]]:
    """Key, subkey and value, of one key or of all."""
    decode = view.declaration(state).codec.decode
    after: bytes | None = b""
    while after is not None:
        page = await view.entries(state, key=key, after=after)
        for entry in page.entries:
            yield entry.key.decode(), entry.sub.decode(), decode(entry.value)
        after = page.after

"""`tidegate topics`: the topics that the code declares, those in the log, and how many records they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegate.client.log_access import LogAccess
from tidegate.engine.topology.plan import Plan, dead_letter_topic
from tidegate.functions.topics import TopicDefinition
from tidegate.host.app_definition import AppDefinition
from tidegate.logs.base import TopicPartition
from tidegate.logs.observer import Observer
from tidegate.owner_rpc.protocol import TopicStatus
from tidegate_app.formatting import span, type_name

__all__ = ("list_topics",)

COUNTED: Final = 100_000
"""Up to this many offsets, the records of a topic are counted one by one."""


async def list_topics(definition: AppDefinition, flags: Mapping[str, Any], *, internal: bool) -> list[dict[str, Any]]:
    """All topics of the app; with `internal`, internal ones, too."""
    access = LogAccess(definition, flags)
    async with access.observed() as observer:
        plan, existing = await access.load_plan(observer)
        there = {topic.name: topic for topic in existing}
        known = plan.topics
        shown = [topic for topic in known.values() if internal or not topic.internal]
        rows = [_topic_row(plan, topic, topic.name in there) for topic in shown]
        if internal:
            rows += [_internal_row(topic) for name, topic in there.items() if name not in known]
        for row in rows:
            if observer is not None and row["created"]:
                row["records"], row["exact"] = await _count(observer, there[row["name"]])
    return rows


async def _count(observer: Observer, topic: TopicStatus) -> tuple[int, bool]:
    """The number of records, and whether it is exact. Transactions, compaction and retention leave gaps between
    offsets, so records are counted one by one; for a large topic the offsets give an upper bound."""
    spans = {TopicPartition(topic.name, number): end for number, end in enumerate(topic.ends)}
    bound = sum(topic.ends) - sum(topic.starts)
    if bound > COUNTED:
        return bound, False
    reader = observer.reader()
    reader.assign({source: topic.starts[source.partition] for source in spans})
    records = 0
    while any(reader.position(source) < end for source, end in spans.items()):
        records += sum(len(batch.records) for batch in await reader.read(timeout=0.5))
    return records, True


def _topic_row(plan: Plan, topic: TopicDefinition, created: bool) -> dict[str, Any]:
    services = plan.services.values()
    letters = {service.name: dead_letter_topic(plan.app, service) for service in services}
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "records": 0,
        "exact": True,
        "created": created,
        "kept": _kept(topic.compact, topic.retention_ms, topic.retention_bytes),
        "type": type_name(topic.codec.type),
        "written_by": [
            service.name
            for service in services
            if topic.name in {output.name for output in service.outputs.values()}
            or topic.name == getattr(letters[service.name], "name", None)
        ],
        "read_by": [service.name for service in services if topic.name in {input_.name for input_ in service.topics}],
        "internal": topic.internal,
    }


def _internal_row(status: TopicStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "partitions": status.partitions,
        "records": 0,
        "exact": True,
        "created": True,
        "kept": _kept(status.compact, status.retention_ms, status.retention_bytes),
        "type": "",
        "written_by": [],
        "read_by": [],
        "internal": True,
    }


def _kept(compact: bool, retention_ms: int | None, retention_bytes: int | None) -> str:
    if compact:
        return "last of each key"
    limits = []
    if retention_ms is not None:
        limits.append(span(retention_ms))
    if retention_bytes is not None:
        limits.append(f"{retention_bytes:,} bytes per partition")
    return " or ".join(limits) or "forever"

"""What `tidegate topics` and `tidegate services` show: what the code declares, and what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from tidegate.access import Access
from tidegate.control.client import connect
from tidegate.control.messages import ServiceStatus, TopicStatus
from tidegate.control.operations import describe_topics
from tidegate.engine.plan import Plan, dead_letter_topic
from tidegate.functions.policies import Retry
from tidegate.functions.service import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.host import AppDefinition
from tidegate.logs.base import TopicPartition, TopicSpec
from tidegate.logs.embedded.observer import LogObserver
from tidegate.state.declaration import StateDeclaration

__all__ = ("list_services", "list_topics")

COUNTED: Final = 100_000
"""Up to so many offsets, a topic's records are counted."""
ANY_TIMER: Final = "(any)"


# ------------------------------------------------------------------------------------------------------------ topics


async def list_topics(definition: AppDefinition, flags: Mapping[str, Any], *, internal: bool) -> list[dict[str, Any]]:
    """All topics of the app, and with `internal` those that Tidegate made for itself."""
    access = Access(definition, flags)
    async with _observed(access) as observer:
        there = {} if observer is None else {topic.name: topic for topic in await describe_topics(observer)}
        plan = _plan(access, there.values())
        known = plan.topics
        shown = [topic for topic in known.values() if internal or not topic.internal]
        rows = [_topic_row(plan, topic, topic.name in there) for topic in shown]
        if internal:
            rows += [_internal_row(topic) for name, topic in there.items() if name not in known]
        for row in rows:
            if observer is not None and row["created"]:
                row["records"], row["exact"] = await _count(observer, there[row["name"]])
    return rows


@asynccontextmanager
async def _observed(access: Access) -> AsyncIterator[LogObserver | None]:
    """The log, seen from beside its owner; None: there is none yet."""
    if not access.exists:
        yield None
        return
    observer = LogObserver(access.directory)
    await observer.start()
    try:
        yield observer
    finally:
        await observer.stop()


async def _count(observer: LogObserver, topic: TopicStatus) -> tuple[int, bool]:
    """How many records there are. Transactions, compaction and retention leave gaps between offsets, so only a look
    at the records tells; if they are many, the offsets must do: there are at most so many."""
    spans = {TopicPartition(topic.name, number): end for number, end in enumerate(topic.ends)}
    most = sum(topic.ends) - sum(topic.starts)
    if most > COUNTED:
        return most, False
    reader = observer.reader()
    reader.assign({source: topic.starts[source.partition] for source in spans})
    records = 0
    while any(reader.position(source) < end for source, end in spans.items()):
        records += sum(len(batch.records) for batch in await reader.read(timeout=0))
    return records, True


def _plan(access: Access, there: Iterable[TopicStatus]) -> Plan:
    definition = access.definition
    existing = {topic.name: TopicSpec(name=topic.name, partitions=topic.partitions) for topic in there}
    return Plan(definition.id, definition.services, definition.topics, access.settings, existing)


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
        "type": _type_name(topic.codec.type),
        "written_by": [
            service.name
            for service in services
            if topic.name in {output.name for output in service.outputs.values()}
            or topic.name == getattr(letters[service.name], "name", None)
        ],
        "read_by": [service.name for service in services if topic.name in {input_.name for input_ in service.inputs}],
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
        limits.append(_span(retention_ms))
    if retention_bytes is not None:
        limits.append(f"{retention_bytes:,} bytes per partition")
    return " or ".join(limits) or "for ever"


def _span(milliseconds: int) -> str:
    for unit, name in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds")):
        if milliseconds >= unit:
            return f"{milliseconds / unit:g} {name}"
    return f"{milliseconds} ms"


# ---------------------------------------------------------------------------------------------------------- services


async def list_services(definition: AppDefinition, flags: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | None]:
    """All services as declared, with their lag if a worker runs; and that worker."""
    access = Access(definition, flags)
    connection = await connect(access.directory)
    if connection is None:
        async with _observed(access) as observer:
            plan = _plan(access, [] if observer is None else await describe_topics(observer))
        return [_service_row(plan, service, None) for service in plan.services.values()], None
    try:
        plan = _plan(access, await connection.topics())
        status = {service.name: service for service in await connection.services()}
    finally:
        await connection.close()
    rows = [_service_row(plan, service, status.get(service.name)) for service in plan.services.values()]
    return rows, str(connection.address)


def _service_row(plan: Plan, service: ServiceDefinition, status: ServiceStatus | None) -> dict[str, Any]:
    return {
        "name": service.name,
        "inputs": [topic.name for topic in service.inputs],
        "outputs": [topic.name for topic in service.outputs.values()],
        "states": {name: _state_name(state) for name, state in service.states.items()},
        "tasks": service.tasks,
        "errors": _policy_name(service),
        "timers": _timer_names(service),
        "guarantee": service.guarantee,
        "rekeys_for": service.rekeys,
        "lag": None if status is None else sum(task.lag for task in status.tasks),
        "waiting": None if status is None else sum(task.waiting for task in status.tasks),
    }


def _timer_names(service: ServiceDefinition) -> list[str]:
    names = [ANY_TIMER if name is None else name for name in service.timer_handlers]
    return names or ([ANY_TIMER] if service.prototype is not None and service.handles_timer("") else [])


def _policy_name(service: ServiceDefinition) -> str:
    policy = service.errors
    if isinstance(policy, Retry):
        return f"retry {policy.times} times, then {_plain_policy(policy.then)}"
    return _plain_policy(policy)


def _plain_policy(policy: object) -> str:
    return {"Stop": "stop", "Skip": "skip", "DeadLetter": "dead letter"}.get(type(policy).__name__, repr(policy))


def _state_name(state: StateDeclaration) -> str:
    inner = _type_name(state.codec.type)
    if state.kind == "map":
        inner = f"{_type_name(state.key_type)}, {inner}"
    ttl = "" if state.ttl is None else f", kept {_span(state.ttl.ms)}"
    return f"{state.kind}[{inner}]{ttl}"


def _type_name(type_: Any) -> str:
    if type_ is Any:
        return "any"
    return str(getattr(type_, "__name__", "") if isinstance(type_, type) else "") or repr(type_).replace("typing.", "")

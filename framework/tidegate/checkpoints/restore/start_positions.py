"""Start positions of public topics, where the savepoint's positions are not valid or are overridden.

Offsets belong to one log. On another one, each topic that is written from outside needs an explicit start: `earliest`,
`latest`, or a time. Topics that the app's own services write are read from their ends: in-flight records are part of
the savepoint, and later records are sent by the new run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal

from tidegate.engine.formats.commit_marker import InputMark
from tidegate.engine.topology.plan import Plan
from tidegate.errors import UnknownNameError, UsageError
from tidegate.logs.base import Log, TopicPartition

__all__ = ("Start", "check_starts", "parse_starts", "resolve_starts")

Start = Literal["earliest", "latest"] | int
"""An int is a time in milliseconds."""

_SECONDS_LIMIT: Final = 10**11
"""A number below this is in seconds: as milliseconds it would be before 1974."""


def parse_starts(given: Iterable[str]) -> dict[str, Start]:
    """Parses `TOPIC=earliest|latest|TIME`."""
    starts: dict[str, Start] = {}
    for text in given:
        topic, separator, where = text.partition("=")
        if not separator or not topic:
            raise UsageError(
                f"--start {text}: write --start TOPIC=earliest, TOPIC=latest or TOPIC=2026-01-31T12:00:00Z"
            )
        starts[topic] = where if where in ("earliest", "latest") else _time(text, where)  # type: ignore[assignment]
    return starts


def _time(text: str, where: str) -> int:
    if where.isdecimal():
        return int(where) * (1000 if int(where) < _SECONDS_LIMIT else 1)
    try:
        moment = datetime.fromisoformat(where)
    except ValueError:
        raise UsageError(
            f"--start {text}: a start is earliest, latest, a time such as 2026-01-31T12:00:00Z, or seconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def check_starts(plan: Plan, starts: Mapping[str, Start], *, same_log: bool) -> None:
    """UsageError: names the topics that need a start. UnknownNameError: a topic that no service reads."""
    public = {source.topic for source in _public(plan)}
    outside = {topic for task in plan.tasks for topic in task.outside}
    for topic in starts:
        if topic not in public:
            raise UnknownNameError("topic that a service reads", topic, public)
    if missing := sorted(outside - starts.keys()) if not same_log else []:
        raise UsageError(
            f"the savepoint was taken on another log, so its offsets are not valid here. Say where to start: "
            f"{' '.join(f'--start {topic}=earliest' for topic in missing)} (or latest, or a time)"
        )


def _public(plan: Plan) -> set[TopicPartition]:
    return {source for task in plan.tasks for topic, source in task.sources if not topic.internal}


async def resolve_starts(
    plan: Plan, log: Log, starts: Mapping[str, Start], *, same_log: bool
) -> dict[TopicPartition, InputMark]:
    """The positions that replace the savepoint's."""
    chosen = {source for source in _public(plan) if source.topic in starts or not same_log}
    first, last = await log.start_offsets(chosen), await log.end_offsets(chosen)
    return {
        source: InputMark(position=await _position(log, source, starts.get(source.topic, "latest"), first, last))
        for source in chosen
    }


async def _position(
    log: Log,
    source: TopicPartition,
    start: Start,
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
) -> int:
    if start == "earliest":
        return first[source]
    if start == "latest":
        return last[source]
    return await _first_at(log, source, int(start), first[source], last[source])


async def _first_at(log: Log, source: TopicPartition, time: int, start: int, end: int) -> int:
    """The offset of the first record of this time or later. Timestamps may be out of order, so this is a scan."""
    reader = log.reader()
    try:
        reader.assign({source: start})
        while reader.position(source) < end:
            for batch in await reader.read(timeout=5.0):
                for record in batch.records:
                    if record.timestamp >= time:
                        return record.offset
        return end
    finally:
        await reader.close()

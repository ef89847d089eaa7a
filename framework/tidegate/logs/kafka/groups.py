"""Consumer groups, seen from outside: who is in one, and positions for the tools that watch lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import GroupIdNotFound, KafkaError
from aiokafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest

from tidegate.logs.base import TopicPartition
from tidegate.logs.kafka.connection.broker_errors import RetryBudget, error_of
from tidegate.logs.kafka.connection.cluster import Cluster
from tidegate.logs.observer import Worker

__all__ = ("Groups", "Said", "group_of", "member_of")

_NOBODY: Final = ""
_NO_GENERATION: Final = -1
_AS_THE_BROKER_SAYS: Final = -1


def group_of(app: str) -> str:
    """The group of an app's workers. The one that is named like the app is Faust's, whose agents may go on in it; those
    named APP.SERVICE hold positions for the tools that watch lag, and no service can have this name."""
    return f"{app}:workers"


class Said(msgspec.Struct, array_like=True):
    """What a worker adds to its subscription when it joins its app's group."""

    generation: int
    owned: list[TopicPartition]
    held: list[TopicPartition]
    name: str = ""
    """For people: which process this is."""
    address: str = ""
    """Where its API answers."""
    partitions: dict[str, int] = {}
    """How many tasks there are of each service that it knows, by changelog."""


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def members(self, group: str) -> list[Worker]:
        """Nobody is in a group that does not exist."""
        response = await self._ask(group, DescribeGroupsRequest([group]), _described)
        return [member_of(*member) for found in response.groups for member in found[5]]

    async def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Positions of a group that has no members. Nothing of ours reads them."""
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for (topic, number), position in positions.items():
            topics.setdefault(topic, []).append((number, position, ""))
        request = OffsetCommitRequest(group, _NO_GENERATION, _NOBODY, _AS_THE_BROKER_SAYS, list(topics.items()))
        await self._ask(group, request, _committed)

    async def delete(self, groups: Iterable[str]) -> None:
        """With their positions; unknown ones are ignored."""
        for group in groups:
            await self._ask(group, DeleteGroupsRequest([group]), _deleted)

    async def _ask(self, group: str, request: Any, codes: Callable[[Any], Iterable[int]]) -> Any:
        """Ask the group's coordinator, whoever that is, until it agrees."""
        patience = RetryBudget(self._cluster.settings.kafka_request_timeout, f"asking about the group {group!r}")
        while True:
            try:
                response = await self._cluster.send(await self._cluster.group_coordinator(group), request)
                for code in codes(response):
                    if (error := error_of(code, group)) is not None and not isinstance(error, GroupIdNotFound):
                        raise error
            except KafkaError as error:
                await patience.bear(error)
            else:
                return response


def _described(response: Any) -> Iterable[int]:
    return [found[0] for found in response.groups]


def _committed(response: Any) -> Iterable[int]:
    return [code for _, partitions in response.topics for _, code in partitions]


def _deleted(response: Any) -> Iterable[int]:
    return [code for _, code in response.results]


def member_of(identity: str, client: str, host: str, metadata: bytes, assignment: bytes) -> Worker:
    """A member as the group's coordinator describes it."""
    tasks = ConsumerProtocolMemberAssignment.decode(assignment).partitions() if assignment else ()
    said = _said(metadata)
    return Worker(
        name=said.name or f"{client} at {host.lstrip('/')}",
        tasks=frozenset(TopicPartition(task.topic, task.partition) for task in tasks),
        address=said.address,
    )


def _said(metadata: bytes) -> Said:
    if not metadata:
        return Said(0, [], [])
    try:
        said = ConsumerProtocolMemberMetadata.decode(metadata).user_data
        return msgspec.msgpack.decode(said, type=Said)
    except (ValueError, msgspec.MsgspecError):  # somebody else's consumer
        return Said(0, [], [])

"""Consumer groups through the admin protocol: members, metadata of members, published positions."""

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

__all__ = ("Groups", "MemberMetadata", "group_of", "member_of")

_NO_MEMBER: Final = ""
_NO_GENERATION: Final = -1
_DEFAULT_RETENTION: Final = -1


def group_of(app: str) -> str:
    """The group of an app's workers. It cannot collide with the group APP, which belongs to Faust's agents, nor with
    the groups APP.SERVICE, which hold positions for tools that watch lag."""
    return f"{app}:workers"


class MemberMetadata(msgspec.Struct, array_like=True):
    """The user data that a worker adds to its subscription when it joins its app's group."""

    generation: int
    owned: list[TopicPartition]
    held: list[TopicPartition]
    name: str = ""
    """The process, for messages."""
    address: str = ""
    """The URL of its API."""
    partitions: dict[str, int] = {}
    """By changelog, the number of tasks of each service in its code."""


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def members(self, group: str) -> list[Worker]:
        """Empty for a group that does not exist."""
        response = await self._request(group, DescribeGroupsRequest([group]), _described)
        return [member_of(*member) for found in response.groups for member in found[5]]

    async def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit positions of a group without members, for external tools only."""
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for (topic, number), position in positions.items():
            topics.setdefault(topic, []).append((number, position, ""))
        request = OffsetCommitRequest(group, _NO_GENERATION, _NO_MEMBER, _DEFAULT_RETENTION, list(topics.items()))
        await self._request(group, request, _committed)

    async def delete(self, groups: Iterable[str]) -> None:
        """Delete groups with their positions; unknown groups are ignored."""
        for group in groups:
            await self._request(group, DeleteGroupsRequest([group]), _deleted)

    async def _request(self, group: str, request: Any, codes: Callable[[Any], Iterable[int]]) -> Any:
        """Send a request to the group's coordinator, with retries."""
        budget = RetryBudget(self._cluster.settings.kafka_request_timeout, f"a request about the group {group!r}")
        while True:
            try:
                response = await self._cluster.send(await self._cluster.group_coordinator(group), request)
                for code in codes(response):
                    if (error := error_of(code, group)) is not None and not isinstance(error, GroupIdNotFound):
                        raise error
            except KafkaError as error:
                await budget.wait_or_raise(error)
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
    member = _metadata_of(metadata)
    return Worker(
        name=member.name or f"{client} at {host.lstrip('/')}",
        tasks=frozenset(TopicPartition(task.topic, task.partition) for task in tasks),
        address=member.address,
    )


def _metadata_of(subscription: bytes) -> MemberMetadata:
    if not subscription:
        return MemberMetadata(0, [], [])
    try:
        user_data = ConsumerProtocolMemberMetadata.decode(subscription).user_data
        return msgspec.msgpack.decode(user_data, type=MemberMetadata)
    except (ValueError, msgspec.MsgspecError):  # a consumer that is not a worker of Tidegate
        return MemberMetadata(0, [], [])

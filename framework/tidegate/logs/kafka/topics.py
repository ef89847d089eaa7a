"""Topics on Kafka: their configuration from and to a TopicSpec; creating, describing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiokafka.errors import (
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from tidegate.errors import LogError, PartitionCountError
from tidegate.logs.base import TopicSpec
from tidegate.logs.kafka.connection.broker_errors import RetryBudget, error_of
from tidegate.logs.kafka.connection.cluster import Cluster
from tidegate.settings import KafkaSettings

__all__ = ("Topics", "configs_of", "spec_of")

_TOPIC: Final = 2
"""The resource type of topics in DescribeConfigs."""
_UNLIMITED: Final = (1 << 63) - 1
_TIMESTAMP_LIMIT: Final = "message.timestamp.after.max.ms"
"""Exists from Kafka 3.6 on; earlier brokers have no such limit by default."""
_MAX_MESSAGE_BYTES: Final = "max.message.bytes"
_DESCRIBED: Final = (
    _MAX_MESSAGE_BYTES,
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "message.timestamp.type",
)


def configs_of(spec: TopicSpec, settings: KafkaSettings) -> dict[str, str]:
    """The configuration that a topic is created with."""
    configs = {
        "cleanup.policy": "compact" if spec.compact else "delete",
        "retention.ms": str(-1 if spec.retention_ms is None or spec.compact else spec.retention_ms),
        "retention.bytes": str(-1 if spec.retention_bytes is None or spec.compact else spec.retention_bytes),
        "message.timestamp.type": "LogAppendTime" if spec.append_time else "CreateTime",
    }
    if spec.compact:
        configs["delete.retention.ms"] = str(spec.tombstone_ms)
    if spec.internal:
        # Internal topics accept the largest request of a writer, and event times ahead of the clock.
        configs[_TIMESTAMP_LIMIT] = str(_UNLIMITED)
        configs[_MAX_MESSAGE_BYTES] = str(max(settings.kafka_max_request_bytes, 1_048_588))
    return configs


def spec_of(name: str, partitions: int, configs: Mapping[str, str]) -> TopicSpec:
    """The spec of a topic, from its configuration."""

    def limit(config: str) -> int | None:
        value = int(configs.get(config, -1))
        return None if value < 0 else value

    compact = "compact" in configs.get("cleanup.policy", "")
    expires = "delete" in configs.get("cleanup.policy", "")
    return TopicSpec(
        name=name,
        partitions=partitions,
        compact=compact,
        retention_ms=limit("retention.ms") if expires else None,
        retention_bytes=limit("retention.bytes") if expires else None,
        append_time=configs.get("message.timestamp.type") == "LogAppendTime",
        tombstone_ms=int(configs.get("delete.retention.ms", TopicSpec.tombstone_ms)),
    )


class Topics:
    """Admin requests about topics."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._compacted: dict[str, bool] = {}
        """By topic that was described."""

    async def describe(self, only: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        """The existing topics; with `only`, those of them with these names."""
        budget = self._retry_budget("describing topics")
        while True:
            try:
                counts = await self._cluster.all_topics()
                if only is not None:
                    counts = {name: counts[name] for name in only if name in counts}
                configs = await self._configs(counts)
            except KafkaError as error:
                await budget.wait_or_raise(error)
                continue
            found = {name: spec_of(name, counts[name], configs[name]) for name in configs}
            self._compacted.update((name, spec.compact) for name, spec in found.items())
            return found

    async def is_compacted(self, topic: str) -> bool:
        """Cached: one request per topic."""
        if topic not in self._compacted:
            await self.describe([topic])
        return self._compacted.get(topic, False)

    async def largest_message(self, topic: str) -> int:
        """The largest batch that a topic accepts; 0: unknown. It is only needed for the message of a
        RecordTooLargeError, so an unreachable broker must not raise another error."""
        try:
            configs = await self._configs([topic])
        except KafkaError:
            return 0
        return int(configs.get(topic, {}).get(_MAX_MESSAGE_BYTES, 0))

    async def create(self, wanted: Iterable[TopicSpec]) -> None:
        """1. Check the existing topics. 2. Create the missing ones. 3. Wait until every broker has their metadata."""
        specs = {spec.name: spec for spec in wanted}
        missing = self._missing(specs, await self.describe(specs))
        if missing:
            await self._create(missing)
            await self._wait_until_propagated(missing)
            self._missing(specs, await self.describe(missing))

    async def delete(self, names: Iterable[str]) -> None:
        deleted = list(names)
        if not deleted:
            return
        budget = self._retry_budget("deleting topics")
        while True:
            try:
                await self._delete(deleted)
                break
            except KafkaError as error:
                await budget.wait_or_raise(error)
        for name in deleted:
            self._compacted.pop(name, None)
        await self._wait_until_propagated(dict.fromkeys(deleted))
        self._cluster.untrack(deleted)
        await self._cluster.refresh()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _missing(self, wanted: Mapping[str, TopicSpec], existing: Mapping[str, TopicSpec]) -> dict[str, TopicSpec]:
        for name in wanted.keys() & existing.keys():
            spec, known = wanted[name], existing[name]
            if known.partitions != spec.partitions:
                raise PartitionCountError(name, known.partitions, spec.partitions)
            if spec.compact and not known.compact:
                raise LogError(
                    f"topic {name!r} is not compacted, so its retention would delete records that must be kept. If it "
                    f"is empty, delete it and start again; otherwise set its cleanup.policy to 'compact'."
                )
        return {name: spec for name, spec in wanted.items() if name not in existing}

    async def _create(self, missing: Mapping[str, TopicSpec]) -> None:
        settings = self._cluster.settings
        wanted = {name: configs_of(spec, settings) for name, spec in missing.items()}
        budget = self._retry_budget("creating topics")
        while wanted:
            topics: list[tuple[str, int, int, list[int], list[tuple[str, str]]]] = [
                (name, missing[name].partitions, settings.kafka_replication, [], list(configs.items()))
                for name, configs in wanted.items()
            ]
            request = CreateTopicsRequest(topics, int(settings.kafka_request_timeout * 1000), validate_only=False)
            try:
                response = await self._cluster.send(await self._cluster.controller(), request)
                for name, code, message in response.topic_errors:
                    self._handle_result(name, error_of(code, message or name), wanted)
            except KafkaError as error:
                await budget.wait_or_raise(error)
                if isinstance(error, NotControllerError):
                    await self._cluster.refresh()

    def _handle_result(self, name: str, error: KafkaError | None, wanted: dict[str, dict[str, str]]) -> None:
        """Remove a created topic from `wanted`, or drop a configuration that the broker does not know."""
        if error is None or isinstance(error, TopicAlreadyExistsError):
            wanted.pop(name, None)
        elif isinstance(error, InvalidConfigurationError) and _TIMESTAMP_LIMIT in wanted[name]:
            del wanted[name][_TIMESTAMP_LIMIT]
        elif isinstance(error, InvalidReplicationFactorError):
            raise LogError(
                f"topic {name!r} cannot have a replication factor of {self._cluster.settings.kafka_replication}: "
                f"{error}. Set kafka_replication to at most the number of brokers."
            ) from error
        else:
            raise error

    async def _delete(self, names: Iterable[str]) -> None:
        timeout = int(self._cluster.settings.kafka_request_timeout * 1000)
        request = DeleteTopicsRequest(list(names), timeout)
        response = await self._cluster.send(await self._cluster.controller(), request)
        for name, code in response.topic_error_codes:
            error = error_of(code, name)
            if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
                raise error

    async def _wait_until_propagated(self, topics: Mapping[str, TopicSpec | None]) -> None:
        """Wait until the metadata of every broker has a leader for each partition of the topics; None: until it does
        not contain the topic."""
        budget = self._retry_budget("waiting for topics")
        for node in self._cluster.nodes:
            while True:
                try:
                    if await self._is_current(node, topics):
                        break
                    raise LeaderNotAvailableError(f"broker {node} has old metadata of {', '.join(topics)}")
                except KafkaError as error:
                    await budget.wait_or_raise(error)

    async def _is_current(self, node: int, topics: Mapping[str, TopicSpec | None]) -> bool:
        request = MetadataRequest(list(topics), allow_auto_topic_creation=False)
        response = await self._cluster.send(node, request)
        leaders = {
            name: sum(1 for _, _, leader, *_ in partitions if leader >= 0)
            for code, name, _, partitions in response.topics
            if code != UnknownTopicOrPartitionError.errno
        }
        return all(leaders.get(name) == (None if spec is None else spec.partitions) for name, spec in topics.items())

    async def _configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [(_TOPIC, name, list(_DESCRIBED)) for name in names]
        if not resources:
            return {}
        response = await self._cluster.send(self._cluster.any_node, DescribeConfigsRequest(resources))
        found: dict[str, dict[str, str]] = {}
        for code, message, _, name, entries in response.resources:
            error = error_of(code, message or name)
            if isinstance(error, UnknownTopicOrPartitionError):
                continue
            if error is not None:
                raise error
            found[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
        return found

    def _retry_budget(self, what: str) -> RetryBudget:
        return RetryBudget(self._cluster.settings.kafka_request_timeout, f"{what} at {self._cluster.where}", first=0.01)

"""Topics: how they are kept, said in Kafka's words; creating, describing and deleting them."""

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
"""The kind of resource that a topic is, in DescribeConfigs."""
_FOR_EVER: Final = (1 << 63) - 1
_NEWER: Final = "message.timestamp.after.max.ms"
"""From 3.6 on; before, brokers had no such limit unless it was configured."""
_LARGEST: Final = "max.message.bytes"
_DESCRIBED: Final = (
    _LARGEST,
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
        # What is ours we write and read in one piece, and event time runs ahead of the clock where users say so.
        configs[_NEWER] = str(_FOR_EVER)
        configs[_LARGEST] = str(max(settings.kafka_max_request_bytes, 1_048_588))
    return configs


def spec_of(name: str, partitions: int, configs: Mapping[str, str]) -> TopicSpec:
    """What a topic's configuration says."""

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
    """What is asked of a cluster about its topics."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._compacted: dict[str, bool] = {}
        """Of the topics that were described."""

    async def describe(self, only: Iterable[str] | None = None) -> dict[str, TopicSpec]:
        """The topics that there are, or those of these names that there are."""
        patience = self._patience("describing topics")
        while True:
            try:
                counts = await self._cluster.all_topics()
                if only is not None:
                    counts = {name: counts[name] for name in only if name in counts}
                configs = await self._configs(counts)
            except KafkaError as error:
                await patience.bear(error)
                continue
            found = {name: spec_of(name, counts[name], configs[name]) for name in configs}
            self._compacted.update((name, spec.compact) for name, spec in found.items())
            return found

    async def is_compacted(self, topic: str) -> bool:
        """Asked once for each topic."""
        if topic not in self._compacted:
            await self.describe([topic])
        return self._compacted.get(topic, False)

    async def largest_message(self, topic: str) -> int:
        """How large a batch a topic takes; 0: the broker does not say. That a record is too large is certain: a broker
        that is away must not make it another error."""
        try:
            configs = await self._configs([topic])
        except KafkaError:
            return 0
        return int(configs.get(topic, {}).get(_LARGEST, 0))

    async def create(self, wanted: Iterable[TopicSpec]) -> None:
        """1. Check those that are there. 2. Create the others. 3. Wait until every broker knows them."""
        specs = {spec.name: spec for spec in wanted}
        missing = self._missing(specs, await self.describe(specs))
        if missing:
            await self._create(missing)
            await self._until_everywhere(missing)
            self._missing(specs, await self.describe(missing))

    async def delete(self, names: Iterable[str]) -> None:
        gone = list(names)
        if not gone:
            return
        patience = self._patience("deleting topics")
        while True:
            try:
                await self._delete(gone)
                break
            except KafkaError as error:
                await patience.bear(error)
        for name in gone:
            self._compacted.pop(name, None)
        await self._until_everywhere(dict.fromkeys(gone))
        self._cluster.forget(gone)
        await self._cluster.refresh()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _missing(self, wanted: Mapping[str, TopicSpec], there: Mapping[str, TopicSpec]) -> dict[str, TopicSpec]:
        for name in wanted.keys() & there.keys():
            spec, known = wanted[name], there[name]
            if known.partitions != spec.partitions:
                raise PartitionCountError(name, known.partitions, spec.partitions)
            if spec.compact and not known.compact:
                raise LogError(
                    f"topic {name!r} is not compacted, so what it is to keep would be lost with time. If it holds "
                    f"nothing yet, delete it and start again; else set its cleanup.policy to 'compact'."
                )
        return {name: spec for name, spec in wanted.items() if name not in there}

    async def _create(self, missing: Mapping[str, TopicSpec]) -> None:
        settings = self._cluster.settings
        wanted = {name: configs_of(spec, settings) for name, spec in missing.items()}
        patience = self._patience("creating topics")
        while wanted:
            topics: list[tuple[str, int, int, list[int], list[tuple[str, str]]]] = [
                (name, missing[name].partitions, settings.kafka_replication, [], list(configs.items()))
                for name, configs in wanted.items()
            ]
            request = CreateTopicsRequest(topics, int(settings.kafka_request_timeout * 1000), validate_only=False)
            try:
                response = await self._cluster.send(await self._cluster.controller(), request)
                for name, code, message in response.topic_errors:
                    self._created(name, error_of(code, message or name), wanted)
            except KafkaError as error:
                await patience.bear(error)
                if isinstance(error, NotControllerError):
                    await self._cluster.refresh()

    def _created(self, name: str, error: KafkaError | None, wanted: dict[str, dict[str, str]]) -> None:
        """Strike a topic off the list, or change what is asked for."""
        if error is None or isinstance(error, TopicAlreadyExistsError):
            wanted.pop(name, None)
        elif isinstance(error, InvalidConfigurationError) and _NEWER in wanted[name]:
            del wanted[name][_NEWER]
        elif isinstance(error, InvalidReplicationFactorError):
            raise LogError(
                f"topic {name!r} cannot have {self._cluster.settings.kafka_replication} copies: {error}. "
                f"Set kafka_replication to no more than the number of brokers."
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

    async def _until_everywhere(self, topics: Mapping[str, TopicSpec | None]) -> None:
        """Wait until every broker shows topics as they are to be: with a leader of each partition; None: not at all."""
        patience = self._patience("waiting for topics")
        for node in self._cluster.nodes:
            while True:
                try:
                    if await self._shown(node, topics):
                        break
                    raise LeaderNotAvailableError(f"broker {node} does not know yet of {', '.join(topics)}")
                except KafkaError as error:
                    await patience.bear(error)

    async def _shown(self, node: int, topics: Mapping[str, TopicSpec | None]) -> bool:
        request = MetadataRequest(list(topics), allow_auto_topic_creation=False)
        response = await self._cluster.send(node, request)
        shown = {
            name: sum(1 for _, _, leader, *_ in partitions if leader >= 0)
            for code, name, _, partitions in response.topics
            if code != UnknownTopicOrPartitionError.errno
        }
        return all(shown.get(name) == (None if spec is None else spec.partitions) for name, spec in topics.items())

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

    def _patience(self, what: str) -> RetryBudget:
        return RetryBudget(self._cluster.settings.kafka_request_timeout, f"{what} at {self._cluster.where}", first=0.01)

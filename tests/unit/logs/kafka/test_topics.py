from __future__ import annotations

from typing import Any, cast

from aiokafka.errors import NodeNotReadyError

from tidegate.errors import RecordTooLargeError
from tidegate.logs.base import TopicSpec
from tidegate.logs.kafka.connection.cluster import Cluster
from tidegate.logs.kafka.topics import Topics, configs_of, spec_of
from tidegate.settings import KafkaSettings

SETTINGS = KafkaSettings()


def test_unlimited_retention_sets_no_limits() -> None:
    configs = configs_of(TopicSpec(name="a", partitions=1), SETTINGS)
    assert (configs["retention.ms"], configs["retention.bytes"], configs["cleanup.policy"]) == ("-1", "-1", "delete")


def test_a_compacted_topic_is_never_trimmed_otherwise() -> None:
    configs = configs_of(TopicSpec(name="a", partitions=1, compact=True, retention_ms=5, retention_bytes=5), SETTINGS)
    assert (configs["retention.ms"], configs["retention.bytes"], configs["cleanup.policy"]) == ("-1", "-1", "compact")
    assert configs["delete.retention.ms"] == "86400000"


def test_public_topics_keep_the_brokers_limits() -> None:
    configs = configs_of(TopicSpec(name="a", partitions=1), SETTINGS)
    assert "message.timestamp.after.max.ms" not in configs
    assert "max.message.bytes" not in configs


def test_internal_topics_accept_the_largest_writable_record() -> None:
    spec = TopicSpec(name="a", partitions=1, internal=True)
    assert configs_of(spec, KafkaSettings(kafka_max_request_bytes=5 << 20))["max.message.bytes"] == str(5 << 20)
    assert configs_of(spec, KafkaSettings(kafka_max_request_bytes=20_000))["max.message.bytes"] == "1048588"


def test_a_created_topic_is_described_as_declared() -> None:
    for spec in (
        TopicSpec(name="a", partitions=3),
        TopicSpec(name="a", partitions=1, retention_ms=1000, retention_bytes=5, append_time=True),
        TopicSpec(name="a", partitions=2, compact=True, tombstone_ms=1000),
    ):
        assert spec_of("a", spec.partitions, configs_of(spec, SETTINGS)) == spec


def test_a_topic_of_others_may_be_compacted_and_expire() -> None:
    spec = spec_of("a", 1, {"cleanup.policy": "compact,delete", "retention.ms": "1000", "retention.bytes": "-1"})
    assert (spec.compact, spec.retention_ms, spec.retention_bytes) == (True, 1000, None)


class Away:
    """A cluster of which the broker that is asked has just gone away."""

    any_node = 1

    async def send(self, *_: Any) -> Any:
        raise NodeNotReadyError("it is away")


async def test_a_too_large_record_is_reported_also_if_the_limit_is_unknown() -> None:
    limit = await Topics(cast(Cluster, Away())).largest_message("orders")

    assert str(RecordTooLargeError("orders", 2000, limit)) == "2,000 bytes for orders are over the limit for a record"

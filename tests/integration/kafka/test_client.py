"""Connections that end under those who use them, on the loop that workers run on."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop
from aiokafka.errors import NodeNotReadyError
from aiokafka.protocol.metadata import MetadataRequest

from tidegate.logs.kafka.connection.client import Client
from tidegate.logs.kafka.connection.options import addresses_of, client_options
from tidegate.settings import KafkaSettings
from tidegate_app.kafka.plugin import SharedKafka


class _Closed:
    """A writer whose transport uvloop has closed, but has not reported yet."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        raise RuntimeError(f"unable to perform operation on {self._writer.transport}; the handler is closed")

    def close(self) -> None:
        self._writer.close()


def test_a_connection_closed_during_a_send_is_reopened(kafka: SharedKafka) -> None:
    """uvloop raises RuntimeError then, which aiokafka does not expect: the sender must get a Kafka error."""

    async def main() -> tuple[Any, Any]:
        client = Client(**client_options(addresses_of(kafka.url), KafkaSettings()))
        await client.bootstrap()
        try:
            (node,) = [broker.nodeId for broker in client.cluster.brokers()]
            request = MetadataRequest([], allow_auto_topic_creation=False)
            before = await client.send(node, request, group="lane")
            connection = client._conns[node, "lane"]
            connection._writer = _Closed(connection._writer)
            with pytest.raises(NodeNotReadyError, match="was closed"):
                await client.send(node, request, group="lane")
            return before, await client.send(node, request, group="lane")
        finally:
            await client.close()

    before, after = uvloop.run(main())
    assert before.brokers == after.brokers

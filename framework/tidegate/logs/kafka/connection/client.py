"""aiokafka's client with changed handling of topics, unreachable brokers, connections and errors."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.conn import CloseReason, create_conn
from aiokafka.errors import KafkaError, NodeNotReadyError, RequestTimedOutError
from aiokafka.protocol.metadata import MetadataRequest

__all__ = ("CLOSE_SECONDS", "Client", "Lane")

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""How long connections may take to close."""
RECONNECT_SECONDS: Final = 0.5
"""Wait before the next attempt to connect to an unreachable broker."""

Lane = Hashable
"""Requests of one lane share a connection to each broker, which answers them in order."""


class Client(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """Connections and metadata.

    Differences to aiokafka's client: a metadata request never creates a topic. One caller at a time reconnects to an
    unreachable broker, with a wait in between, and the log has one line about it. A single lane can be closed. Any
    failure of a connection raises a KafkaError to its callers."""

    def __init__(self, bootstrap_servers: Sequence[str], *, quiet: bool = False, **options: Any) -> None:
        """`quiet`: another client of this process logs unreachable brokers."""
        super().__init__(bootstrap_servers=list(bootstrap_servers), **options)
        self._connection_options, self._level = options, logging.DEBUG if quiet else logging.WARNING
        self._unreachable: dict[int, float] = {}
        """By unreachable broker, the time of the next attempt to connect."""
        self._connecting: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def send(self, node_id: int, request: Any, *, group: Lane = 0) -> Any:
        """Send a request to a broker. NodeNotReadyError: it was not sent; after any other error it may have been."""
        connection = await self._get_conn(node_id, group=group)
        if connection is None:
            raise NodeNotReadyError(f"there is no connection to broker {node_id}")
        try:
            response = connection.send(request)
        except RuntimeError as error:  # uvloop raises it when the peer has closed the transport
            connection.close(reason=CloseReason.CONNECTION_BROKEN)
            raise NodeNotReadyError(f"the connection to broker {node_id} was closed: {error}") from error
        try:
            return await response
        except TimeoutError as error:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)  # a late response would block later ones
            raise RequestTimedOutError() from error

    async def close_lane(self, lane: Lane) -> None:
        """Close a lane's connections; its pending requests fail."""
        mine = [identity for identity in self._conns if identity[1] == lane]
        closing = [closed for identity in mine if (closed := self._conns.pop(identity).close()) is not None]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_SECONDS)

    async def _get_conn(self, node_id: int, *, group: Lane = 0, no_hint: bool = False) -> Any:
        if (connection := self._connected(node_id, group)) is not None:
            return connection
        async with self._connecting[node_id]:
            if (connection := self._connected(node_id, group)) is not None:
                return connection  # another caller has connected meanwhile
            if self._loop.time() < self._unreachable.get(node_id, 0):
                return None
            broker = self.cluster.broker_metadata(node_id)
            if broker is None:
                self.force_metadata_update()
                return None
            try:
                connection = await create_conn(
                    broker.host, broker.port, on_close=self._on_connection_closed, **self._connection_options
                )
            except (TimeoutError, OSError, KafkaError) as error:
                self._note_failure(broker, error)
                return None
            self._conns[node_id, group] = connection
            if self._unreachable.pop(node_id, None) is not None:
                logger.log(self._level, "broker %s at %s:%s is reachable again", node_id, broker.host, broker.port)
            return connection

    def _connected(self, node_id: int, lane: Lane) -> Any:
        connection = self._conns.get((node_id, lane))
        return connection if connection is not None and connection.connected() else None

    def _note_failure(self, broker: Any, error: BaseException) -> None:
        if broker.nodeId not in self._unreachable:
            logger.log(
                self._level,
                "broker %s at %s:%s is unreachable: %r. Requests to it wait, and connecting is retried",
                *(broker.nodeId, broker.host, broker.port, error),
            )
        self._unreachable[broker.nodeId] = self._loop.time() + RECONNECT_SECONDS
        self.force_metadata_update()

    async def _metadata_update(self, cluster_metadata: Any, topics: Iterable[str] | None) -> bool:
        request = MetadataRequest(list(topics) if topics else None, allow_auto_topic_creation=False)
        for broker in self.cluster.brokers():
            try:
                response = await self.send(broker.nodeId, request)
            except Exception as error:  # it would end aiokafka's metadata task, and its waiters would hang
                logger.debug("no metadata from %s:%s: %r", broker.host, broker.port, error)
                continue
            cluster_metadata.update_metadata(response)
            return True
        return False

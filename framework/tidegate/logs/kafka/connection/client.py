"""aiokafka's client, with four habits changed."""

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

__all__ = ("GOODBYE", "Client", "Lane")

logger = logging.getLogger(__name__)

GOODBYE: Final = 2.0
"""How long connections may take to close, in seconds."""
RECONNECT: Final = 0.5
"""How long a broker that could not be reached is left alone, in seconds."""

Lane = Hashable
"""Requests of one lane share a connection to each broker, which answers them one after the other."""


class Client(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """Connections and metadata.

    To ask for a topic never creates it. A broker that cannot be reached is tried by one of those who wait for it, now
    and then, not by all of them, and there is one line about it in the log. Single lanes can be closed. Whatever
    becomes of a connection, who sends through it gets a KafkaError."""

    def __init__(self, bootstrap_servers: Sequence[str], *, quiet: bool = False, **options: Any) -> None:
        """`quiet`: another client of this process tells about brokers that are away."""
        super().__init__(bootstrap_servers=list(bootstrap_servers), **options)
        self._how, self._level = options, logging.DEBUG if quiet else logging.WARNING
        self._away: dict[int, float] = {}
        """The brokers that could not be reached, and until when nobody tries it again."""
        self._connecting: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def send(self, node_id: int, request: Any, *, group: Lane = 0) -> Any:
        """Ask a broker. NodeNotReadyError: nothing was sent; after any other error it may have been."""
        connection = await self._get_conn(node_id, group=group)
        if connection is None:
            raise NodeNotReadyError(f"there is no connection to broker {node_id}")
        try:
            answer = connection.send(request)
        except RuntimeError as error:  # uvloop's word for a transport that the other side has closed
            connection.close(reason=CloseReason.CONNECTION_BROKEN)
            raise NodeNotReadyError(f"the connection to broker {node_id} was closed: {error}") from error
        try:
            return await answer
        except TimeoutError as error:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)  # else its late answer would be in the way
            raise RequestTimedOutError() from error

    async def hang_up(self, lane: Lane) -> None:
        """Close a lane's connections; what was asked there is not answered any more."""
        mine = [identity for identity in self._conns if identity[1] == lane]
        closing = [closed for identity in mine if (closed := self._conns.pop(identity).close()) is not None]
        if closing:
            await asyncio.wait(closing, timeout=GOODBYE)

    async def _get_conn(self, node_id: int, *, group: Lane = 0, no_hint: bool = False) -> Any:
        if (connection := self._connected(node_id, group)) is not None:
            return connection
        async with self._connecting[node_id]:
            if (connection := self._connected(node_id, group)) is not None:
                return connection  # somebody else had waited for it, too
            if self._loop.time() < self._away.get(node_id, 0):
                return None
            broker = self.cluster.broker_metadata(node_id)
            if broker is None:
                self.force_metadata_update()
                return None
            try:
                connection = await create_conn(
                    broker.host, broker.port, on_close=self._on_connection_closed, **self._how
                )
            except (TimeoutError, OSError, KafkaError) as error:
                self._note_failure(broker, error)
                return None
            self._conns[node_id, group] = connection
            if self._away.pop(node_id, None) is not None:
                logger.log(self._level, "broker %s at %s:%s answers again", node_id, broker.host, broker.port)
            return connection

    def _connected(self, node_id: int, lane: Lane) -> Any:
        connection = self._conns.get((node_id, lane))
        return connection if connection is not None and connection.connected() else None

    def _note_failure(self, broker: Any, error: BaseException) -> None:
        if broker.nodeId not in self._away:
            logger.log(
                self._level,
                "broker %s at %s:%s cannot be reached: %r. It is tried again, and whoever needs it waits",
                *(broker.nodeId, broker.host, broker.port, error),
            )
        self._away[broker.nodeId] = self._loop.time() + RECONNECT
        self.force_metadata_update()

    async def _metadata_update(self, cluster_metadata: Any, topics: Iterable[str] | None) -> bool:
        request = MetadataRequest(list(topics) if topics else None, allow_auto_topic_creation=False)
        for broker in self.cluster.brokers():
            try:
                response = await self.send(broker.nodeId, request)
            except Exception as error:  # aiokafka's task for this would end with it, and all who wait for it hang
                logger.debug("no metadata from %s:%s: %r", broker.host, broker.port, error)
                continue
            cluster_metadata.update_metadata(response)
            return True
        return False

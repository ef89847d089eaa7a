"""Probes whether a broker responds."""

from __future__ import annotations

import asyncio
import socket
import threading

__all__ = ("answers",)


def answers(address: str, seconds: float = 2.0) -> bool:
    """Whether the broker responds in time with cluster metadata that lists at least one broker."""
    if not _listens(address, seconds):
        return False
    found: list[bool] = []
    # In a thread of its own: the caller may be inside an event loop.
    thread = threading.Thread(target=lambda: found.append(asyncio.run(_has_brokers(address, seconds))))
    thread.start()
    thread.join()
    return found == [True]


def _listens(address: str, seconds: float) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), seconds).close()
    except OSError:
        return False
    return True


async def _has_brokers(address: str, seconds: float) -> bool:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.errors import KafkaError

    client = AIOKafkaClient(bootstrap_servers=address, request_timeout_ms=int(seconds * 1000))
    try:
        await asyncio.wait_for(client.bootstrap(), seconds)
        return bool(client.cluster.brokers())
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await client.close()

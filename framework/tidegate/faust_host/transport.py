"""Faust's consumer, which reads committed records and commits the positions of handled records.

An agent's event counts as handled when the agent asks for the next one. It also does when the agent is cancelled or
has failed, since that closes its stream: so nothing is committed any more once that may have happened.

Transactions leave offsets without a record: their ends, and what was aborted. Faust commits up to the first offset
that no agent has acknowledged, and so it notes these as gaps. Services write in transactions, which makes gaps frequent
enough to show two mistakes in that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

__all__ = ("Consumer", "ConsumerThread", "Transport")

_POLL_SECONDS: Final = 0.02


class ConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        """Read committed records only. Faust does so only for apps with exactly-once agents."""
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001  it is used when the consumer starts
        return consumer


class Consumer(driver.Consumer):
    def __init__(self, transport: Any, callback: Callable[[Any], Awaitable[None]], *args: Any, **options: Any) -> None:
        async def receive(message: Any) -> None:
            if message.offset > 1 and self._read_offset[message.tp] == 0:  # behind offset 0, Faust notes no gap
                await self._add_gap(message.tp, 1, message.offset)
            await callback(message)

        super().__init__(transport, receive, *args, **options)
        self._finished = False

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        if self._finished or self.app.crashed:
            return False
        return await super().commit(topics, start_new_transaction)

    async def finish(self) -> None:
        """Commit the positions of handled events only: agents that still run are about to be cancelled."""
        await self.commit()
        self._finished = True

    def release(self) -> None:
        """Close the event loop of a thread that never ran: Faust creates a consumer for each app, and starts few."""
        if not self.started:
            self._thread.thread_loop.close()

    async def perform_seek(self) -> None:
        """Stop the flow until the caller resumes it at the end of the rebalance, when the agents' buffers are empty. A
        record that arrived earlier would be discarded with the buffers, and count as read."""
        self.stop_flow()
        await super().perform_seek()

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Exclude the last offset that Faust passes: it is that of the unhandled record after the gap."""
        await super()._add_gap(tp, offset_from, offset_to - 1)


class Transport(driver.Transport):
    """Faust's transport, with this consumer."""

    Consumer: ClassVar[Any] = Consumer

    async def _create_topic(self, owner: Any, client: Any, topic: str, *args: Any, **options: Any) -> None:
        """Wait until the topic is in the metadata. An agent that subscribes earlier receives no records for five
        minutes."""
        await super()._create_topic(owner, client, topic, *args, **options)
        while not (owner.should_stop or topic in (await client.fetch_all_metadata()).topics()):
            await owner.sleep(_POLL_SECONDS)

"""Triggers a checkpoint or a savepoint through the control topic, and waits until it is complete.

The request stays in the log until it is answered, so it survives a change of the leader.
"""

from __future__ import annotations

import asyncio
import uuid

from tidegate.checkpoints.control_messages import ANSWERS, REQUESTS, Answer, Request
from tidegate.checkpoints.storage.checkpoint_storage import check_name
from tidegate.errors import CheckpointFailedError
from tidegate.logs.base import Log, NewRecord, Reader, TopicPartition
from tidegate.time.clock import Clock

__all__ = ("request_checkpoint",)


async def request_checkpoint(
    log: Log, app: str, clock: Clock, *, name: str | None = None, timeout: float, stop: bool = False
) -> int:
    """Returns the epoch of the new checkpoint or, with a name, of the new savepoint. CheckpointFailedError: there is
    none. `stop`: the workers stop with it, and process nothing that it does not contain.
    Without an answer within the timeout, for example because no worker runs, the request is withdrawn."""
    if name is not None:
        check_name(name)
    control, id_ = TopicPartition(f"{app}.control", 0), uuid.uuid4().hex
    reader = log.reader()
    try:
        reader.assign(await log.end_offsets([control]))
        now = clock.now()
        request = Request(name=name, stop=stop, asked_ms=now, until_ms=now + round(timeout * 1000))
        await _append(log, control, REQUESTS.record(id_, request, now))
        try:
            async with asyncio.timeout(timeout):
                answer = await _answer(reader, ANSWERS.key(id_))
        except TimeoutError:
            raise CheckpointFailedError(0, f"no worker has answered within {timeout:g} s") from None
        finally:
            now = clock.now()
            await _append(log, control, REQUESTS.record(id_, None, now), ANSWERS.record(id_, None, now))
    finally:
        await reader.close()
    if answer.error:
        raise CheckpointFailedError(answer.epoch, answer.error)
    return answer.epoch


async def _answer(reader: Reader, key: bytes) -> Answer:
    while True:
        for batch in await reader.read(timeout=1.0):
            for record in batch.records:
                if record.key == key and record.value is not None:
                    return ANSWERS.decode(record.value)


async def _append(log: Log, control: TopicPartition, *records: NewRecord) -> None:
    writer = await log.writer()
    try:
        await writer.append({control: records})
    finally:
        await writer.close()

"""The checkpoint coordinator. One worker leads: the owner of the control topic's partition.

1. Take over: the leader opens a writer with the transactional id `{app}.leader`, which fences the leader before it, and
   reads the control topic to its end: all that its predecessor knew is there.
2. Resolve the checkpoint that the predecessor left: it is complete if its manifest is in the storage, else it is
   aborted and its request is tried again.
3. Begin: when a checkpoint is due or requested, append the barrier. One checkpoint is under way at a time; its epoch is
   higher than any in the log or the storage. If the checkpoint before was aborted, delete its files.
4. Wait until every task has reported its snapshot. Abort if a task fails, was opened again, or time is up.
5. Copy the in-flight records from the log.
6. Confirm the leadership by one more append, then put the manifest. Now the checkpoint is complete, whatever happens to
   the leader.
7. Append the outcome to the log, and the answer to the request.
8. Apply retention: delete older checkpoints, and files that no checkpoint refers to.

Between checkpoints the leader trims internal topics: see `log_trim`. A storage may hang rather than fail: see
`storage_timeouts`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidegate.checkpoints.control_messages import ANSWERS, Answer, Request
from tidegate.checkpoints.coordination.ledger import Ledger
from tidegate.checkpoints.coordination.log_trim import consumed_positions, trims
from tidegate.checkpoints.coordination.storage_timeouts import GRACE_SECONDS, StorageTimeouts
from tidegate.checkpoints.snapshot.in_flight import in_flight, sent_before
from tidegate.checkpoints.storage.checkpoint_storage import CheckpointStorage, check_name
from tidegate.checkpoints.storage.description import describe
from tidegate.checkpoints.storage.in_flight_format import InFlightRecord, encode_in_flight
from tidegate.checkpoints.storage.manifest import FileRef, Manifest, TaskSnapshot, decode_task
from tidegate.engine.formats.barrier import CheckpointRecord, checkpoint_record
from tidegate.engine.topology.plan import Plan, TaskPlan
from tidegate.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    FencedError,
    LogError,
    LogUnavailableError,
    TidegateError,
    UsageError,
)
from tidegate.faults import fault_point
from tidegate.logs.base import Log, NewRecord, Reader, TopicPartition, Writer
from tidegate.settings import Settings
from tidegate.time.clock import Clock

__all__ = ("Coordinator",)

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
"""Attempts per request: a rebalance may abort the first."""
_RETRY_SECONDS: Final = 0.2
"""Between attempts: tasks read the outcome of the last one, and release its snapshots."""
_RECONNECT_SECONDS: Final = 1.0
_LAST_TRIM_SECONDS: Final = 5.0
_LEADER_KEY: Final = b"tidegate/leader"
_TRIM_SECONDS: Final = 30.0
"""Interval of trimming internal topics. A new leader trims at once: a short run may end before the interval does."""


class Coordinator:
    def __init__(
        self,
        plan: Plan,
        log: Log,
        settings: Settings,
        clock: Clock,
        storage: Callable[[], Awaitable[CheckpointStorage]],
        leads: Callable[[], bool],
    ) -> None:
        self._plan, self._log, self._settings, self._clock = plan, log, settings, clock
        self._storage, self._leads = storage, leads
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self.ledger = Ledger(plan.run.id)
        self._attempts: dict[str, int] = {}
        """Attempts per request that is not answered yet."""
        self._outage_logged = False
        self._retry_at = 0.0
        """By the loop's clock: when an aborted request may be tried again."""
        self._timeouts = StorageTimeouts(settings.checkpoint_timeout)
        self._started_at = self._last_attempt_at = clock.monotonic()
        """When the checkpoint under way, and the last attempt at one, began."""
        self._trim_at = 0.0
        """By the clock: when internal topics are trimmed next."""
        self._trim_failure_logged = False

    # -- leading -----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Leads as long as the group assigns the control partition to this worker."""
        while True:
            try:
                if self._leads():
                    await self.step(timeout=0.2)
                    self._outage_logged = False
                    continue
                await self.resign()
            except (FencedError, LogUnavailableError) as error:
                if not self._outage_logged:  # once per outage, not once a second
                    logger.warning("this worker does not coordinate checkpoints for now: %s", error)
                self._outage_logged = True
                await self.resign()
                await asyncio.sleep(_RECONNECT_SECONDS)
            await asyncio.sleep(0.1)

    async def finish_bounded_run(self) -> None:
        """A bounded run may be too short for its leader to trim anything: runs that are started every minute would let
        internal topics grow without limit."""
        if not self._leads() or not trims(self._plan):
            return
        try:
            async with asyncio.timeout(_LAST_TRIM_SECONDS):
                await self._lead()
                if self.ledger.under_way is None:
                    await self._trim()
        except (LogError, TimeoutError) as error:
            reason = str(error) or f"no success within {_LAST_TRIM_SECONDS:g} s"
            logger.warning("consumed records of internal topics are not deleted yet: %s", reason)

    async def resign(self) -> None:
        writer, self._writer = self._writer, None
        reader, self._reader = self._reader, None
        if writer is not None:
            await writer.close()
        if reader is not None:
            await reader.close()

    async def step(self, *, timeout: float = 0.0) -> bool:
        """Reads the control topic, then does the next thing that is due. False: nothing was due."""
        if self._writer is None:
            await self._take_over()
        await self._poll(timeout)
        under_way = self.ledger.under_way
        if under_way is not None:
            return await self._advance(under_way)
        return await self._begin_if_due() or await self._trim_if_due()

    async def _take_over(self) -> None:
        """Steps 1 and 2."""
        fault_point("leader.starting")
        await self._lead()
        abandoned = self.ledger.under_way
        if abandoned is not None:
            await self._resolve(abandoned, "its leader is gone")
        fault_point("leader.started")
        await self._trim()

    async def _lead(self) -> None:
        """Step 1."""
        self._writer = await self._log.writer(f"{self._plan.app}.leader")
        self.ledger = Ledger(self._plan.run.id)
        control = self._plan.control
        start, end = await self._log.start_offsets([control]), await self._log.end_offsets([control])
        self._reader = self._log.reader()
        self._reader.assign({control: start[control]})
        while self._reader.position(control) < end[control]:
            await self._poll(1.0)

    async def _resolve(self, barrier: CheckpointRecord, reason: str) -> None:
        """The checkpoint is complete if its manifest is in the storage, else it is aborted for this reason."""
        try:
            storage = await self._storage()
            manifest = await self._timeouts.call(
                storage, storage.manifest, barrier.name or barrier.epoch, seconds=GRACE_SECONDS
            )
        except (CheckpointError, UsageError):
            manifest = None
        if manifest is not None and (manifest.run, manifest.epoch) == (barrier.run, barrier.epoch):
            await self._complete(barrier, manifest)
        else:
            await self._record_outcome(barrier, reason=reason)

    async def _poll(self, timeout: float) -> None:
        assert self._reader is not None  # noqa: S101  it leads
        for batch in await self._reader.read(timeout=timeout):
            for record in batch.records:
                self.ledger.add(record)

    async def _append(self, *records: NewRecord) -> None:
        """Append to the control topic, and read up to there: the ledger contains the records then."""
        assert self._writer is not None  # noqa: S101
        control = self._plan.control
        ends = await self._writer.append({control: list(records)})
        assert self._reader is not None  # noqa: S101
        while self._reader.position(control) < ends[control]:
            await self._poll(1.0)

    async def _confirm_leadership(self) -> None:
        """FencedError: another worker leads."""
        await self._append((_LEADER_KEY, b"", self._clock.now(), ()))

    # -- beginning ---------------------------------------------------------------------------------------------------
    async def _begin_if_due(self) -> bool:
        id_, request = next(iter(self.ledger.requests.items()), ("", None))
        if request is not None and request.expired(self._clock.now()):
            await self._answer(id_, Answer(error="the request expired before a worker led the app"))
            return True
        if asyncio.get_running_loop().time() < self._retry_at:
            return False
        interval = self._settings.checkpoint_interval
        if request is None and not (interval > 0 and self._clock.monotonic() - self._last_attempt_at >= interval):
            return False
        self._last_attempt_at = self._clock.monotonic()
        try:
            await self._begin(id_, request)
        except (CheckpointError, UsageError) as error:
            await self._reject(id_, error)
        return True

    async def _begin(self, id_: str, request: Request | None) -> None:
        """Step 3."""
        storage = await self._storage()
        name = None if request is None else request.name
        if request is not None and name is not None and await self._exists(storage, id_, request, check_name(name)):
            return
        epochs, base = await self._timeouts.call(storage, lambda: (storage.epochs(), _base(storage)))
        latest = self.ledger.latest
        epoch = max([0, *epochs, *((latest.epoch,) if latest is not None else ())]) + 1
        barrier = CheckpointRecord(
            run=self._plan.run.id,
            epoch=epoch,
            state="begun",
            started_ms=self._clock.now(),
            name=name,
            base=base,
            request=id_,
            stop=request is not None and request.stop,
        )
        fault_point("leader.beginning")
        await self._append(checkpoint_record(barrier, barrier.started_ms))
        self._started_at = self._clock.monotonic()
        fault_point("leader.begun")
        if latest is not None and latest.state == "aborted":
            await self._delete_aborted(storage, latest, epoch)

    async def _delete_aborted(self, storage: CheckpointStorage, aborted: CheckpointRecord, epoch: int) -> None:
        """Delete the files of aborted checkpoints: a storage that is full or slow must not fill up with every attempt.
        This worker led when it appended the barrier, so every checkpoint before it has its outcome."""
        if self._timeouts.manifest_pending:
            return
        try:
            if aborted.name is not None:
                await self._timeouts.call(storage, storage.sweep_savepoint, aborted.name, aborted.epoch)
            await self._timeouts.call(storage, storage.sweep, epoch)
        except CheckpointError as error:
            logger.warning("the files of aborted checkpoint %d are not deleted yet: %s", aborted.epoch, error)

    async def _exists(self, storage: CheckpointStorage, id_: str, request: Request, name: str) -> bool:
        """Whether the savepoint exists. If an earlier attempt at this request was aborted although its manifest had
        been written, the savepoint is the answer; not with `stop`, since the app has processed more since."""
        try:
            manifest = await self._timeouts.call(storage, storage.manifest, name)
        except CheckpointNotFoundError:
            return False
        if manifest.request != id_:
            raise UsageError(f"there is a savepoint {name!r} already; choose another name, or delete it first")
        if request.stop:
            raise UsageError(
                f"savepoint {name!r} is complete, but the app has processed records since and keeps running. To stop "
                f"it, choose another name, or delete this savepoint first"
            )
        await self._answer(id_, Answer(epoch=manifest.epoch))
        return True

    async def _reject(self, id_: str, error: TidegateError) -> None:
        """The storage does not respond, or the request is invalid. The control topic informs all workers."""
        logger.warning("no checkpoint was started: %s", error)
        if id_:
            await self._answer(id_, Answer(error=str(error)))
        if isinstance(error, UsageError):
            return
        latest, now = self.ledger.latest, self._clock.now()
        failed = CheckpointRecord(
            run=self._plan.run.id,
            epoch=1 + (latest.epoch if latest is not None else 0),
            state="aborted",
            started_ms=now,
            ended_ms=now,
            reason=str(error),
        )
        await self._append(checkpoint_record(failed, now))

    # -- ending ------------------------------------------------------------------------------------------------------
    async def _advance(self, barrier: CheckpointRecord) -> bool:
        """Step 4. False: tasks have yet to report."""
        left = self._settings.checkpoint_timeout - (self._clock.monotonic() - self._started_at)
        missing = self.ledger.missing(task.id for task in self._plan.tasks)
        if self.ledger.failure:
            await self._record_outcome(barrier, reason=self.ledger.failure)
        elif left <= 0:
            reason = f"time is up, and these tasks have not reported: {', '.join(missing[:8])}"
            await self._record_outcome(barrier, reason=reason)
        elif missing:
            return False
        else:
            await self._try_to_finish(barrier, left)
        return True

    async def _try_to_finish(self, barrier: CheckpointRecord, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                manifest = await self._finish(barrier)
        except CheckpointError as error:
            await self._resolve(barrier, str(error))  # the put of the manifest may have succeeded without an answer
        except TimeoutError:
            await self._resolve(barrier, "time is up")  # the put may have succeeded at the last moment
        else:
            await self._complete(barrier, manifest)

    async def _finish(self, barrier: CheckpointRecord) -> Manifest:
        """Steps 5 and 6."""
        fault_point("leader.reported")
        storage = await self._storage()
        tasks = {task.id: task for task in self._plan.tasks}
        reports = dict(self.ledger.reports)
        found = await self._timeouts.call(storage, lambda: [_read_task(storage, reports[name].path) for name in tasks])
        ends = sent_before(found)
        snapshots = [
            await self._with_in_flight(storage, barrier, tasks[snapshot.task], snapshot, ends) for snapshot in found
        ]
        fault_point("leader.copied")
        manifest = Manifest(
            app=self._plan.app,
            run=barrier.run,
            epoch=barrier.epoch,
            name=barrier.name,
            started_ms=barrier.started_ms,
            completed_ms=self._clock.now(),
            request=barrier.request,
            uploaded=sum(reports[name].uploaded for name in tasks),
            tasks=snapshots,
            **describe(self._plan),
        )
        await self._confirm_leadership()
        fault_point("leader.completing")
        await self._timeouts.put_manifest(storage, manifest)
        fault_point("leader.completed")
        return manifest

    async def _with_in_flight(
        self,
        storage: CheckpointStorage,
        barrier: CheckpointRecord,
        plan: TaskPlan,
        snapshot: TaskSnapshot,
        ends: dict[TopicPartition, int],
    ) -> TaskSnapshot:
        records = await in_flight(self._log, plan, snapshot, self._plan.app, barrier.epoch, ends)
        if not records:
            return snapshot
        raw, digest = await asyncio.to_thread(_encoded, records)
        path = f"{'' if barrier.name is None else f'{barrier.epoch}/'}in-flight/{plan.id}"
        await self._timeouts.call(storage, storage.put, f"{storage.folder_of(barrier.epoch, barrier.name)}/{path}", raw)
        file = FileRef(name=plan.id, path=path, size=len(raw), sha256=digest)
        return msgspec.structs.replace(snapshot, in_flight=file, in_flight_records=len(records))

    async def _complete(self, barrier: CheckpointRecord, manifest: Manifest) -> None:
        """Steps 7 and 8."""
        await self._record_outcome(barrier, manifest=manifest)
        if self._timeouts.manifest_pending:
            return
        try:
            storage = await self._storage()
            await self._timeouts.call(storage, storage.retain, self._settings.checkpoint_keep)
        except CheckpointError as error:
            logger.warning("old checkpoints are not deleted yet; the next checkpoint tries again: %s", error)

    async def _record_outcome(
        self, barrier: CheckpointRecord, *, manifest: Manifest | None = None, reason: str = ""
    ) -> None:
        """Step 7. Complete with a manifest; aborted without."""
        fault_point("leader.deciding")
        now, id_ = self._clock.now(), barrier.request
        outcome = msgspec.structs.replace(
            barrier,
            state="aborted" if manifest is None else "complete",
            reason=reason,
            ended_ms=now,
            size=0 if manifest is None else manifest.size,
            uploaded=0 if manifest is None else manifest.uploaded,
        )
        records = [checkpoint_record(outcome, now)]
        attempts = self._attempts.pop(id_, 0) + 1
        if id_ and manifest is not None:
            records.append(ANSWERS.record(id_, Answer(epoch=barrier.epoch), now))
        elif id_ and attempts >= _ATTEMPTS:
            records.append(ANSWERS.record(id_, Answer(epoch=barrier.epoch, error=reason), now))
        elif id_:
            self._attempts[id_] = attempts
        await self._append(*records)
        if manifest is None:
            self._retry_at = asyncio.get_running_loop().time() + _RETRY_SECONDS
            logger.warning("checkpoint %s was aborted: %s", barrier.name or barrier.epoch, reason)
        else:
            _log_completion(manifest)

    # -- between checkpoints -----------------------------------------------------------------------------------------
    async def _trim_if_due(self) -> bool:
        return self._clock.monotonic() >= self._trim_at and await self._trim()

    async def _trim(self) -> bool:
        """Only while no checkpoint is under way. False: there is nothing to delete."""
        self._trim_at = self._clock.monotonic() + _TRIM_SECONDS
        consumed = await consumed_positions(self._plan, self._log)
        if not consumed:
            return False
        await self._confirm_leadership()
        fault_point("leader.trimming")
        try:
            await self._log.trim(consumed)
        except LogError as error:
            if not self._trim_failure_logged:  # once, if the broker does not allow it
                logger.warning("consumed records of internal topics are not deleted yet: %s", error)
            self._trim_failure_logged = True
        else:
            self._trim_failure_logged = False
        return True

    async def _answer(self, id_: str, answer: Answer) -> None:
        await self._append(ANSWERS.record(id_, answer, self._clock.now()))


def _base(storage: CheckpointStorage) -> int | None:
    """The newest complete checkpoint, whose files the next one can share. A checkpoint with missing files is unusable:
    all later ones would miss them, too."""
    newest = next(iter(storage.checkpoints()), None)
    if newest is None:
        return None
    missing = storage.missing(newest)
    if missing:
        logger.warning(
            "checkpoint %d has lost %d of its files, including %s: the next checkpoint uploads all files",
            newest, len(missing), storage.where(missing[0]),
        )  # fmt: skip
    return None if missing else newest


def _encoded(records: list[InFlightRecord]) -> tuple[bytes, str]:
    raw = encode_in_flight(records)
    return raw, hashlib.sha256(raw).hexdigest()


def _read_task(storage: CheckpointStorage, path: str) -> TaskSnapshot:
    try:
        return decode_task(storage.get(path), storage.where(path))
    except CheckpointNotFoundError as error:
        raise CheckpointError(
            f"a task's snapshot is not in this worker's storage ({error.where}): workers on several machines need a "
            f"storage that all of them reach (checkpoint_storage)"
        ) from error


def _log_completion(manifest: Manifest) -> None:
    logger.info(
        "%s %s is complete: %.1f MB, %.1f MB of it new, %d records in flight, after %.1f s",
        "checkpoint" if manifest.name is None else "savepoint",
        manifest.id,
        manifest.size / 1e6,
        manifest.uploaded / 1e6,
        manifest.in_flight_records,
        (manifest.completed_ms - manifest.started_ms) / 1000,
    )

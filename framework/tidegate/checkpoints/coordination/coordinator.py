"""The coordinator: begins checkpoints, and decides what becomes of them. One worker leads, by the control topic.

1. Whoever owns the control topic's partition leads. It opens a writer with the id `{app}.leader`, which fences the
   leader before it, and reads the topic to its end: all that its predecessor knew is there.
2. A checkpoint that its predecessor has begun is complete if its manifest is in the storage; else it is aborted. What
   had asked for it asks again.
3. When one is due, or asked for, the leader writes that it has begun: the barrier. There is one at a time, and its
   number is higher than any in the log or the storage. What the one before has left behind, if that was given up, is
   deleted then.
4. Tasks take their snapshots and report. If one cannot, was opened again meanwhile, or time is up: aborted.
5. All have reported: copy what was in flight from the log.
6. Make sure that it still leads, by writing to the log once more. Put the manifest. Now the checkpoint is complete,
   whoever leads.
7. Say so in the log, and answer whoever asked.
8. Delete what need not be kept: older checkpoints, and files that none has any more.

Between checkpoints the leader trims internal topics: see `trimming`. A storage may hang, rather than fail: see
`patience`.
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
from tidegate.checkpoints.coordination.log_trim import find_done, trims
from tidegate.checkpoints.coordination.storage_timeouts import LAST_SECONDS, StorageTimeouts
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
"""How often something that was asked for is tried: a rebalance may come in between."""
_AGAIN_SECONDS: Final = 0.2
"""After one was given up: tasks hear of it, and let go of what they had for it."""
_AWAY_SECONDS: Final = 1.0
_CONCLUDE_SECONDS: Final = 5.0
_LEADER_KEY: Final = b"tidegate/leader"
_TRIM_SECONDS: Final = 30.0
"""How often internal topics are trimmed. A new leader does it at once: short runs may never come to a second time."""


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
        """Of requests that are not answered, how often they were tried."""
        self._away = False
        """It was said that nothing is coordinated from here."""
        self._not_before = 0.0
        """By the loop's clock, when something that was asked for may be tried again."""
        self._patience = StorageTimeouts(settings.checkpoint_timeout)
        self._begun_at = self._last = clock.monotonic()
        """When the checkpoint under way, and the last one, was begun."""
        self._trim_at = 0.0
        """By the clock, when internal topics are to be trimmed again."""
        self._untrimmed = False
        """It was said that they cannot be."""

    # -- leading -----------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """For ever: lead while the group says so."""
        while True:
            try:
                if self._leads():
                    await self.step(timeout=0.2)
                    self._away = False
                    continue
                await self.resign()
            except (FencedError, LogUnavailableError) as error:
                if not self._away:  # not once a second, for as long as a broker is away
                    logger.warning("checkpoints are not coordinated from here for now: %s", error)
                self._away = True
                await self.resign()
                await asyncio.sleep(_AWAY_SECONDS)
            await asyncio.sleep(0.1)

    async def conclude(self) -> None:
        """A bounded run is over, and may have been too short for its leader to trim anything: the runs of every minute
        would leave internal topics that only grow."""
        if not self._leads() or not trims(self._plan):
            return
        try:
            async with asyncio.timeout(_CONCLUDE_SECONDS):
                await self._lead()
                if self.ledger.under_way is None:
                    await self._trim()
        except (LogError, TimeoutError) as error:
            reason = str(error) or f"no success within {_CONCLUDE_SECONDS:g} s"
            logger.warning("what all have read of internal topics is not deleted yet: %s", reason)

    async def resign(self) -> None:
        writer, self._writer = self._writer, None
        reader, self._reader = self._reader, None
        if writer is not None:
            await writer.close()
        if reader is not None:
            await reader.close()

    async def step(self, *, timeout: float = 0.0) -> bool:
        """One thing that is to be done now, after hearing what there is. False: there was nothing to do."""
        if self._writer is None:
            await self._take_over()
        await self._listen(timeout)
        under_way = self.ledger.under_way
        if under_way is not None:
            return await self._look_after(under_way)
        return await self._begin_if_due() or await self._trim_if_due()

    async def _take_over(self) -> None:
        """Steps 1 and 2."""
        fault_point("leader.starting")
        await self._lead()
        left = self.ledger.under_way
        if left is not None:
            await self._settle(left, "its leader is gone")
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
            await self._listen(1.0)

    async def _settle(self, left: CheckpointRecord, reason: str) -> None:
        """It is complete if its manifest is there, else it is given up for this reason."""
        try:
            storage = await self._storage()
            manifest = await self._patience.ask(
                storage, storage.manifest, left.name or left.epoch, seconds=LAST_SECONDS
            )
        except (CheckpointError, UsageError):
            manifest = None
        if manifest is not None and (manifest.run, manifest.epoch) == (left.run, left.epoch):
            await self._complete(left, manifest)
        else:
            await self._decide(left, reason=reason)

    async def _listen(self, timeout: float) -> None:
        assert self._reader is not None  # noqa: S101  it leads
        for batch in await self._reader.read(timeout=timeout):
            for record in batch.records:
                self.ledger.add(record)

    async def _say(self, *records: NewRecord) -> None:
        """Write to the log, and hear it."""
        assert self._writer is not None  # noqa: S101
        control = self._plan.control
        ends = await self._writer.append({control: list(records)})
        assert self._reader is not None  # noqa: S101
        while self._reader.position(control) < ends[control]:
            await self._listen(1.0)

    async def _confirm(self) -> None:
        """Make sure that it still leads: FencedError says that another one does."""
        await self._say((_LEADER_KEY, b"", self._clock.now(), ()))

    # -- beginning ---------------------------------------------------------------------------------------------------
    async def _begin_if_due(self) -> bool:
        id_, request = next(iter(self.ledger.requests.items()), ("", None))
        if request is not None and request.over(self._clock.now()):
            await self._answer(id_, Answer(error="nobody took it up in time, and nobody waits for it any more"))
            return True
        if asyncio.get_running_loop().time() < self._not_before:
            return False
        interval = self._settings.checkpoint_interval
        if request is None and not (interval > 0 and self._clock.monotonic() - self._last >= interval):
            return False
        self._last = self._clock.monotonic()
        try:
            await self._begin(id_, request)
        except (CheckpointError, UsageError) as error:
            await self._cannot_begin(id_, error)
        return True

    async def _begin(self, id_: str, request: Request | None) -> None:
        """Step 3."""
        storage = await self._storage()
        name = None if request is None else request.name
        if request is not None and name is not None and await self._exists(storage, id_, request, check_name(name)):
            return
        epochs, base = await self._patience.ask(storage, lambda: (storage.epochs(), _base(storage)))
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
        await self._say(checkpoint_record(barrier, barrier.started_ms))
        self._begun_at = self._clock.monotonic()
        fault_point("leader.begun")
        if latest is not None and latest.state == "aborted":
            await self._sweep(storage, latest, epoch)

    async def _sweep(self, storage: CheckpointStorage, given_up: CheckpointRecord, epoch: int) -> None:
        """Delete what was uploaded for checkpoints that were given up: a storage that is full, or too slow, must not
        get fuller with every attempt. This one led when it wrote the barrier, so all before it is decided."""
        if self._patience.putting:
            return
        try:
            if given_up.name is not None:
                await self._patience.ask(storage, storage.sweep_savepoint, given_up.name, given_up.epoch)
            await self._patience.ask(storage, storage.sweep, epoch)
        except CheckpointError as error:
            logger.warning("what checkpoint %d has left behind is not deleted yet: %s", given_up.epoch, error)

    async def _exists(self, storage: CheckpointStorage, id_: str, request: Request, name: str) -> bool:
        """Whether there is such a savepoint. If it was made for this request, and given up although it was complete,
        that is the answer; but not for who wants the app to stop with it: it has gone on."""
        try:
            manifest = await self._patience.ask(storage, storage.manifest, name)
        except CheckpointNotFoundError:
            return False
        if manifest.request != id_:
            raise UsageError(f"there is a savepoint {name!r} already; choose another name, or delete it first")
        if request.stop:
            raise UsageError(
                f"savepoint {name!r} was found to be complete too late to stop with it, and the app goes on; choose "
                f"another name, or delete it first"
            )
        await self._answer(id_, Answer(epoch=manifest.epoch))
        return True

    async def _cannot_begin(self, id_: str, error: TidegateError) -> None:
        """The storage does not answer, or what was asked for makes no sense. The log says so, for all to see."""
        logger.warning("no checkpoint is begun: %s", error)
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
        await self._say(checkpoint_record(failed, now))

    # -- ending ------------------------------------------------------------------------------------------------------
    async def _look_after(self, barrier: CheckpointRecord) -> bool:
        """Step 4."""
        left = self._settings.checkpoint_timeout - (self._clock.monotonic() - self._begun_at)
        missing = self.ledger.missing(task.id for task in self._plan.tasks)
        if self.ledger.failure:
            await self._decide(barrier, reason=self.ledger.failure)
        elif left <= 0:
            await self._decide(barrier, reason=f"time is up, and these have not reported: {', '.join(missing[:8])}")
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
            await self._settle(barrier, str(error))  # a storage may have kept the manifest without saying so
        except TimeoutError:
            await self._settle(barrier, "time is up")  # it may have been put just so
        else:
            await self._complete(barrier, manifest)

    async def _finish(self, barrier: CheckpointRecord) -> Manifest:
        """Steps 5 and 6."""
        fault_point("leader.reported")
        storage = await self._storage()
        tasks = {task.id: task for task in self._plan.tasks}
        reports = dict(self.ledger.reports)
        found = await self._patience.ask(storage, lambda: [_read_task(storage, reports[name].path) for name in tasks])
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
        await self._confirm()
        fault_point("leader.completing")
        await self._patience.put(storage, manifest)
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
        await self._patience.ask(storage, storage.put, f"{storage.folder_of(barrier.epoch, barrier.name)}/{path}", raw)
        file = FileRef(name=plan.id, path=path, size=len(raw), sha256=digest)
        return msgspec.structs.replace(snapshot, in_flight=file, in_flight_records=len(records))

    async def _complete(self, barrier: CheckpointRecord, manifest: Manifest) -> None:
        """Steps 7 and 8."""
        await self._decide(barrier, manifest=manifest)
        if self._patience.putting:
            return
        try:
            storage = await self._storage()
            await self._patience.ask(storage, storage.retain, self._settings.checkpoint_keep)
        except CheckpointError as error:
            logger.warning("what is no longer needed could not be deleted, and is next time: %s", error)

    async def _decide(self, barrier: CheckpointRecord, *, manifest: Manifest | None = None, reason: str = "") -> None:
        fault_point("leader.deciding")
        now, id_ = self._clock.now(), barrier.request
        decided = msgspec.structs.replace(
            barrier,
            state="aborted" if manifest is None else "complete",
            reason=reason,
            ended_ms=now,
            size=0 if manifest is None else manifest.size,
            uploaded=0 if manifest is None else manifest.uploaded,
        )
        records = [checkpoint_record(decided, now)]
        attempts = self._attempts.pop(id_, 0) + 1
        if id_ and manifest is not None:
            records.append(ANSWERS.record(id_, Answer(epoch=barrier.epoch), now))
        elif id_ and attempts >= _ATTEMPTS:
            records.append(ANSWERS.record(id_, Answer(epoch=barrier.epoch, error=reason), now))
        elif id_:
            self._attempts[id_] = attempts
        await self._say(*records)
        if manifest is None:
            self._not_before = asyncio.get_running_loop().time() + _AGAIN_SECONDS
            logger.warning("checkpoint %s was given up: %s", barrier.name or barrier.epoch, reason)
        else:
            _tell(manifest)

    # -- between checkpoints -----------------------------------------------------------------------------------------
    async def _trim_if_due(self) -> bool:
        return self._clock.monotonic() >= self._trim_at and await self._trim()

    async def _trim(self) -> bool:
        """No checkpoint is under way. False: there is nothing to delete."""
        self._trim_at = self._clock.monotonic() + _TRIM_SECONDS
        done = await find_done(self._plan, self._log)
        if not done:
            return False
        await self._confirm()
        fault_point("leader.trimming")
        try:
            await self._log.trim(done)
        except LogError as error:
            if not self._untrimmed:  # not again and again, where a broker does not allow it
                logger.warning("what all have read of internal topics is not deleted yet: %s", error)
            self._untrimmed = True
        else:
            self._untrimmed = False
        return True

    async def _answer(self, id_: str, answer: Answer) -> None:
        await self._say(ANSWERS.record(id_, answer, self._clock.now()))


def _base(storage: CheckpointStorage) -> int | None:
    """The newest complete checkpoint, whose files need not be uploaded again. One that has lost some is of no use: all
    later ones would miss them, too."""
    newest = next(iter(storage.checkpoints()), None)
    if newest is None:
        return None
    missing = storage.missing(newest)
    if missing:
        logger.warning(
            "checkpoint %d has lost %d of its files, %s among them: the next one is uploaded as a whole",
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
            f"a task has put its snapshot where this worker does not find it ({error.where}): workers on several "
            f"machines need a storage that all of them reach (checkpoint_storage)"
        ) from error


def _tell(manifest: Manifest) -> None:
    logger.info(
        "%s %s is complete: %.1f MB, %.1f MB of it new, %d records in flight, after %.1f s",
        "checkpoint" if manifest.name is None else "savepoint",
        manifest.id,
        manifest.size / 1e6,
        manifest.uploaded / 1e6,
        manifest.in_flight_records,
        (manifest.completed_ms - manifest.started_ms) / 1000,
    )

"""Reads the control topic for a worker: progress of other tasks, barriers of checkpoints, the start of another run.

It passes records on to the running tasks, and keeps the latest ones for tasks that open later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegate.engine.formats.barrier import CHECKPOINT_KEY, OWN_PREFIX, CheckpointRecord, decode_checkpoint
from tidegate.engine.formats.commit_marker import decode_progress
from tidegate.engine.runtime.snapshots import Snapshots
from tidegate.engine.task import Task
from tidegate.engine.topology.plan import Plan
from tidegate.engine.topology.run import RUN_KEY, Run, decode_run
from tidegate.errors import RunOverError
from tidegate.logs.base import Log, Reader
from tidegate.time.clock import MAX_TIME
from tidegate.time.combined_watermark import Progress

__all__ = ("ControlListener",)


class ControlListener:
    def __init__(
        self, plan: Plan, log: Log, tasks: Mapping[str, Task], snapshots: Snapshots, wake: Callable[[], None]
    ) -> None:
        """`tasks`: the tasks that run here; the mapping changes."""
        self._plan, self._log, self._run = plan, log, plan.run.id
        self._tasks, self._snapshots, self._wake = tasks, snapshots, wake
        self._reader: Reader | None = None
        self._barrier: CheckpointRecord | None = None
        """The latest checkpoint record, for tasks that open later."""
        self._progress: dict[str, Progress] = {}
        """By sending task, its latest progress, for tasks that open later."""
        self._caught_up = False
        """Records read from now on were written while this worker runs."""
        self.stopped = False
        """The app has stopped with a savepoint."""

    async def catch_up(self) -> None:
        """Reads the topic to its end. Drops watermarks at the end of time: they belong to an earlier bounded run."""
        self._barrier, self._caught_up = None, False
        self._snapshots.reset()
        control = self._plan.control
        start, end = await self._log.start_offsets([control]), await self._log.end_offsets([control])
        self._reader = self._log.reader()
        self._reader.assign({control: start[control]})
        while self._reader.position(control) < end[control]:
            await self.poll(timeout=0.5)
        self._progress = {sender: last for sender, last in self._progress.items() if last.watermark < MAX_TIME}
        self._caught_up = True

    async def close(self) -> None:
        reader, self._reader, self._progress = self._reader, None, {}
        if reader is not None:
            await reader.close()

    def bring_up_to_date(self, task: Task) -> None:
        """Passes the latest records on to a task that has opened."""
        if self._barrier is not None and (self._barrier.state == "begun" or self.stopped):
            task.epochs.move_to(self._barrier.epoch, stop=self._barrier.stop)
        for progress in self._progress.values():
            task.watermark_tracker.receive(progress)

    async def poll(self, *, timeout: float) -> bool:
        """Reads and passes on new records. False: there was no new progress."""
        assert self._reader is not None  # noqa: S101  tasks are open
        progressed = False
        for batch in await self._reader.read(timeout=timeout):
            for record in batch.records:
                if record.key is None or record.value is None:
                    continue
                if record.key.startswith(OWN_PREFIX):
                    self._on_own_record(record.key, record.value)
                    self._snapshots.on_control_record(record)
                else:
                    progressed = self._on_progress(record.key, record.value) or progressed
        return progressed

    def _on_progress(self, sender: bytes, value: bytes) -> bool:
        progress = decode_progress(sender, value, self._run)
        if progress is None:
            return False
        self._progress[progress.sender] = progress
        for task in self._tasks.values():
            task.watermark_tracker.receive(progress)
        return True

    def _on_own_record(self, key: bytes, value: bytes) -> None:
        """Records with Tidegate's own prefix, all except progress."""
        if key == RUN_KEY:
            self._on_run(decode_run(value))
        elif key == CHECKPOINT_KEY:
            self._on_checkpoint(decode_checkpoint(value))

    def _on_checkpoint(self, record: CheckpointRecord) -> None:
        if record.run != self._run:
            return
        self._barrier = record
        if record.state == "begun":
            for task in self._tasks.values():
                task.epochs.move_to(record.epoch, stop=record.stop)
        elif record.stop and record.state == "aborted":
            for task in self._tasks.values():
                task.epochs.cancel_stop()
        elif record.stop and self._caught_up:
            self.stopped = True
            self._wake()

    def _on_run(self, run: Run) -> None:
        """Records of earlier runs are ignored: during the catch-up they are older than this worker's run."""
        if int(run.id) > int(self._run):
            raise RunOverError(self._plan.app, self._run, run.id, run.savepoint)

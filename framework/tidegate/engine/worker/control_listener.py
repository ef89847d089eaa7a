"""What the control topic says to a worker: how far other tasks' time has come, barriers, and that another run began.

The tasks that run here are told at once. What was said last is kept for those that open later.
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
        """`tasks`: those that run here; they change."""
        self._plan, self._log, self._run = plan, log, plan.run.id
        self._tasks, self._snapshots, self._wake = tasks, snapshots, wake
        self._reader: Reader | None = None
        self._barrier: CheckpointRecord | None = None
        """The newest checkpoint: for tasks that open later."""
        self._heard: dict[str, Progress] = {}
        """What each sending task told last: for readers that open later."""
        self._caught_up = False
        """What the control topic says from now on is said while this worker runs."""
        self.stopped = False
        """The app has stopped, with a savepoint."""

    async def catch_up(self) -> None:
        """What tasks have told before we came. That a bounded run was at its end, they told of that run only."""
        self._barrier, self._caught_up = None, False
        self._snapshots.reset()
        control = self._plan.control
        start, end = await self._log.start_offsets([control]), await self._log.end_offsets([control])
        self._reader = self._log.reader()
        self._reader.assign({control: start[control]})
        while self._reader.position(control) < end[control]:
            await self.listen(timeout=0.5)
        self._heard = {sender: told for sender, told in self._heard.items() if told.watermark < MAX_TIME}
        self._caught_up = True

    async def close(self) -> None:
        reader, self._reader, self._heard = self._reader, None, {}
        if reader is not None:
            await reader.close()

    def tell(self, task: Task) -> None:
        """A task has opened: what was said before."""
        if self._barrier is not None and (self._barrier.state == "begun" or self.stopped):
            task.epochs.move_to(self._barrier.epoch, stop=self._barrier.stop)
        for progress in self._heard.values():
            task.timekeeper.hear(progress)

    async def listen(self, *, timeout: float) -> bool:
        """Pass on what is said. False: no task has told anything new."""
        assert self._reader is not None  # noqa: S101  tasks are open
        heard = False
        for batch in await self._reader.read(timeout=timeout):
            for record in batch.records:
                if record.key is None or record.value is None:
                    continue
                if record.key.startswith(OWN_PREFIX):
                    self._hear(record.key, record.value)
                    self._snapshots.on_control_record(record)
                else:
                    heard = self._hear_of_progress(record.key, record.value) or heard
        return heard

    def _hear_of_progress(self, sender: bytes, value: bytes) -> bool:
        progress = decode_progress(sender, value, self._run)
        if progress is None:
            return False
        self._heard[progress.sender] = progress
        for task in self._tasks.values():
            task.timekeeper.hear(progress)
        return True

    def _hear(self, key: bytes, value: bytes) -> None:
        """What is not a task's progress."""
        if key == RUN_KEY:
            self._hear_of_run(decode_run(value))
        elif key == CHECKPOINT_KEY:
            self._hear_of_checkpoint(decode_checkpoint(value))

    def _hear_of_checkpoint(self, record: CheckpointRecord) -> None:
        if record.run != self._run:
            return
        self._barrier = record
        if record.state == "begun":
            for task in self._tasks.values():
                task.epochs.move_to(record.epoch, stop=record.stop)
        elif record.stop and record.state == "aborted":
            for task in self._tasks.values():
                task.epochs.go_on()
        elif record.stop and self._caught_up:
            self.stopped = True
            self._wake()

    def _hear_of_run(self, run: Run) -> None:
        """What the control topic says before we have caught up with it may be older than our run."""
        if int(run.id) > int(self._run):
            raise RunOverError(self._plan.app, self._run, run.id, run.savepoint)

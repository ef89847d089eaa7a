"""The event time of a task: watermarks in from its channels, progress out to the tasks downstream.

The watermark comes from the partitions that are written from outside, as the dispatcher handles their records, and from
the progress of the tasks upstream. Partitions that are idle, or at their end, do not hold it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.engine.commit.epoch_alignment import EpochAlignment
from tidegate.engine.event_time.watermark_publisher import WatermarkPublisher
from tidegate.engine.processing.dispatcher import Dispatcher
from tidegate.engine.processing.input import Input
from tidegate.engine.runtime.environment import Environment
from tidegate.engine.topology.plan import TaskPlan
from tidegate.logs.base import TopicPartition
from tidegate.time.clock import MAX_TIME, to_duration
from tidegate.time.combined_watermark import CombinedWatermark, OutsideChannel, Progress, SenderChannel

__all__ = ("WatermarkTracker", "new_time")


def new_time(plan: TaskPlan) -> CombinedWatermark:
    """A channel for each of the task's outside partitions, and for each task upstream."""
    outside = {
        source: OutsideChannel(
            bound=topic.watermark.bound,
            generator=topic.watermark.generator(),
            idle_ms=None if topic.watermark.idle_after is None else to_duration(topic.watermark.idle_after),
        )
        for topic, source in plan.sources
        if topic.name in plan.outside
    }
    return CombinedWatermark(outside, {sender: SenderChannel(sender=sender) for sender in plan.senders})


class WatermarkTracker:
    def __init__(
        self,
        plan: TaskPlan,
        environment: Environment,
        time: CombinedWatermark,
        inputs: Mapping[TopicPartition, Input],
        carried: Mapping[TopicPartition, int],
        dispatcher: Dispatcher,
        epochs: EpochAlignment,
    ) -> None:
        """`carried`: inputs that are read before all others; as long as there are any, the watermark does not move."""
        self._time, self._inputs, self._carried = time, inputs, carried
        self._dispatcher, self._epochs, self._clock = dispatcher, epochs, environment.clock
        self._has_readers = plan.has_readers
        self._publisher = WatermarkPublisher(plan.id, environment.settings.progress_interval, self._clock.monotonic())
        self.silent: list[TopicPartition] = []
        """Outside partitions that have been without records for their idle time."""

    # -- from the tasks upstream -------------------------------------------------------------------------------------
    def receive(self, progress: Progress) -> None:
        """The progress of a task upstream."""
        channel = self._time.senders.get(progress.sender)
        if channel is not None:
            channel.waiting.append(progress)
            self._apply_progress()

    def _apply_progress(self) -> None:
        if self._carried or self._epochs.due:  # a barrier comes before the progress of its epoch
            return
        if sum(channel.apply(self._reached) for channel in self._time.senders.values() if channel.waiting):
            self._dispatcher.time_moved()

    def _reached(self, source: TopicPartition) -> int | None:
        input_ = self._inputs.get(source)
        return None if input_ is None else input_.position

    # -- from outside ------------------------------------------------------------------------------------------------
    def tick(self, monotonic: float) -> None:
        """The clock has moved: received progress may count now, and partitions may have become idle."""
        self._apply_progress()
        self.silent = [source for source in self._time.outside if self._is_silent(source, monotonic)]

    def _is_silent(self, source: TopicPartition, monotonic: float) -> bool:
        channel = self._time.outside[source]
        if not channel.silent(monotonic) or channel.idle or channel.watermark >= MAX_TIME:
            return False
        return self._caught_up(source)

    def _caught_up(self, source: TopicPartition) -> bool:
        if self._carried or self._dispatcher.buffered:
            return False
        return self._inputs[source].handled == self._inputs[source].position

    def let_idle(self, sources: Iterable[TopicPartition]) -> None:
        """Mark these partitions as idle, unless records have come since the log said that everything was read."""
        for source in sources:
            if self._is_silent(source, self._clock.monotonic()):
                self._time.outside[source].idle = True
        self._dispatcher.time_moved()

    def finish_input(self, source: TopicPartition) -> None:
        """The end of this outside partition is reached."""
        if not self._carried:
            self._time.finish(source)
            self._dispatcher.time_moved()

    def advance_watermark(self, watermark: int) -> None:
        """Raise the watermark of all outside partitions to this time."""
        for source in self._time.outside:
            self._time.advance(source, watermark)
        self._dispatcher.time_moved()

    # -- the end of a bounded run ------------------------------------------------------------------------------------
    @property
    def finished(self) -> bool:
        """The watermark is at its end."""
        return self._time.watermark >= MAX_TIME

    def finish_timeless(self) -> None:
        """A bounded run is over for a task without channels: its input comes from a cycle only."""
        if self._time.timeless and not self.finished:
            self._time.end = MAX_TIME
            self._dispatcher.time_moved()

    # -- progress for tasks downstream ---------------------------------------------------------------------------------
    @property
    def progress_due(self) -> bool:
        if not self._has_readers:
            return False
        return self._publisher.due(
            self._dispatcher.output_watermark, self._clock.monotonic(), idle=self._time.idle, last=self.finished
        )

    def next_progress(self, monotonic: float) -> Progress | None:
        """The progress that the next commit publishes, if any is due."""
        if not self.progress_due:
            return None
        return self._publisher.publish(self._dispatcher.output_watermark, monotonic, idle=self._time.idle)

"""Where a task goes on: its input positions and its time, from the last commit marker."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidegate.engine.inputs import Input
from tidegate.engine.markers import ChannelMark, CommitMarker, InputMark, source_name
from tidegate.engine.metrics import TaskMetrics
from tidegate.errors import LogError
from tidegate.logs.base import Log, TopicPartition
from tidegate.time.clock import MAX_TIME, MIN_TIME
from tidegate.time.progress import TaskTime

__all__ = ("resume_inputs", "resume_time")

logger = logging.getLogger(__name__)


async def resume_inputs(
    task: str, inputs: Mapping[TopicPartition, Input], marker: CommitMarker | None, log: Log, metrics: TaskMetrics
) -> None:
    """Each from where the marker says; one that is new to the task, from the log's start."""
    starts, ends = await log.start_offsets(inputs), await log.end_offsets(inputs)
    for source, input_ in inputs.items():
        start = starts[source]
        mark = marker.inputs.get(source_name(source)) if marker is not None else None
        mark = mark or InputMark(position=start)
        if mark.position > ends[source]:
            raise LogError(
                f"{task} has read {source} up to {mark.position}, but it ends at {ends[source]}: it was deleted and "
                f"made anew, or has lost records. Bring it back, or start the app anew with 'tidegate reset'."
            )
        lost = mark.lost_below(start)
        if lost > 0:
            logger.error(
                "%s: retention removed %d offsets of %s before they were read; going on from %d. "
                "Keep the topic longer (retention=), or run the worker more often.",
                task, lost, source, start,
            )  # fmt: skip
            metrics.lost.inc(lost)
        input_.restore(mark.from_start(start))


def resume_time(time: TaskTime, marker: CommitMarker) -> None:
    """A bounded run left time at its end; the next run starts without knowing any."""

    def known(watermark: int) -> int:
        return watermark if watermark < MAX_TIME else MIN_TIME

    time.watermark = known(marker.watermark)
    for source, channel in time.outside.items():
        channel.watermark = known(marker.channels.get(source_name(source), ChannelMark()).watermark)
    for name, sender in time.senders.items():
        sender.watermark = known(marker.channels.get(name, ChannelMark()).watermark)

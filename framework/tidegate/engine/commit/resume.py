"""The resume point of a task: input positions and event time from the last commit marker, and unfinished records."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tidegate.engine.formats.commit_marker import ChannelMark, CommitMarker, InputMark, source_name
from tidegate.engine.processing.input import Input
from tidegate.engine.processing.output import Output
from tidegate.engine.runtime.metrics import TaskMetrics
from tidegate.engine.topology.plan import TaskPlan
from tidegate.errors import LogError
from tidegate.logs.base import Log, TopicPartition
from tidegate.time.clock import MAX_TIME, MIN_TIME
from tidegate.time.combined_watermark import CombinedWatermark, OutsideChannel, SenderChannel

__all__ = ("channel_marks", "find_carried", "find_sent", "resume_inputs", "resume_time")

logger = logging.getLogger(__name__)


async def resume_inputs(
    task: str, inputs: Mapping[TopicPartition, Input], marker: CommitMarker | None, log: Log, metrics: TaskMetrics
) -> None:
    """Resume each input from the marker's position; an input that is new to the task, from the start of the log."""
    starts, ends = await log.start_offsets(inputs), await log.end_offsets(inputs)
    for source, input_ in inputs.items():
        start = starts[source]
        mark = marker.inputs.get(source_name(source)) if marker is not None else None
        mark = mark or InputMark(position=start)
        if mark.position > ends[source]:
            raise LogError(
                f"{task} has read {source} up to {mark.position}, but it ends at {ends[source]}: it was deleted and "
                f"recreated, or has lost records. Restore it, or start over with 'tidegate reset'."
            )
        lost = mark.lost_below(start)
        if lost > 0:
            logger.error(
                "%s: retention removed %d offsets of %s before they were read; resuming from %d. "
                "Keep the topic longer (retention=), or run the worker more often.",
                task, lost, source, start,
            )  # fmt: skip
            metrics.lost.inc(lost)
        input_.restore(mark.from_start(start))


async def find_carried(inputs: Mapping[TopicPartition, Input], log: Log) -> dict[TopicPartition, int]:
    """Inputs with in-flight records of a restored checkpoint that are not read to their ends, with these ends."""
    carried = [source for source, input_ in inputs.items() if input_.topic.carried]
    ends = await log.end_offsets(carried) if carried else {}
    return {source: end for source, end in ends.items() if inputs[source].position < end}


async def find_sent(plan: TaskPlan, outputs: Iterable[Output], log: Log) -> Mapping[TopicPartition, int]:
    """The end offsets of all output partitions: everything that this task sent before a restart is below them. Tasks
    downstream apply its watermark when they have read up to there, since it resumes with its last watermark."""
    if not plan.has_outputs:
        return {}
    targets = {target for output in outputs for target in output.sources}
    mailboxes = [service.mailbox for service in plan.mailboxes.values() if service.mailbox is not None]
    targets |= {TopicPartition(box.name, number) for box in mailboxes for number in range(box.partitions)}
    return await log.end_offsets(targets)


def resume_time(time: CombinedWatermark, marker: CommitMarker) -> None:
    """Resume the watermarks of the marker. Those of a completed bounded run are at the maximum: the next run starts at
    the minimum."""

    def known(watermark: int) -> int:
        return watermark if watermark < MAX_TIME else MIN_TIME

    time.watermark = known(marker.watermark)
    for source, channel in time.outside.items():
        channel.watermark = known(marker.channels.get(source_name(source), ChannelMark()).watermark)
    for name, sender in time.senders.items():
        sender.watermark = known(marker.channels.get(name, ChannelMark()).watermark)


def channel_marks(time: CombinedWatermark) -> dict[str, ChannelMark]:
    """The watermarks of a task's channels, for its commit marker."""
    channels: dict[str, OutsideChannel | SenderChannel] = {
        **{source_name(source): channel for source, channel in time.outside.items()},
        **time.senders,
    }
    return {name: ChannelMark(watermark=channel.watermark, idle=channel.idle) for name, channel in channels.items()}

"""The commit marker in a changelog, and the progress records that tasks send downstream."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.errors import DecodeError
from tidegate.logs.base import TopicPartition
from tidegate.time.clock import MIN_TIME
from tidegate.time.combined_watermark import Progress

__all__ = (
    "ChannelMark",
    "CommitMarker",
    "InputMark",
    "decode_marker",
    "decode_progress",
    "encode_marker",
    "encode_progress",
    "parse_source",
    "source_name",
)

FORMAT: Final = 1


class InputMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a task in one input partition."""

    position: int
    """All records below were processed or are unfinished."""
    unfinished: list[int] = []
    """Offsets below `position` whose handlers had not finished: a recovery processes them again."""

    @property
    def resume_at(self) -> int:
        return min(self.unfinished, default=self.position)

    def lost_below(self, start: int) -> int:
        """The number of unprocessed offsets below the partition's start, which retention has deleted."""
        return max(0, start - self.position) + sum(offset < start for offset in self.unfinished)

    def from_start(self, start: int) -> InputMark:
        """The mark without the offsets below the partition's start."""
        unfinished = [offset for offset in self.unfinished if offset >= start]
        return InputMark(position=max(start, self.position), unfinished=unfinished)


class ChannelMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    watermark: int = MIN_TIME
    idle: bool = False


class CommitMarker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last record of every commit, under one key, so that a changelog always ends with its newest marker."""

    version: int = FORMAT
    lineage: str
    """Created with the changelog: a local store with another lineage belongs to a deleted topic of the same name."""
    run: str
    epoch: int = 0
    inputs: dict[str, InputMark]
    """By `topic:partition`."""
    watermark: int = MIN_TIME
    channels: dict[str, ChannelMark] = {}


class _ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run: str
    epoch: int = 0
    watermark: int = MIN_TIME
    idle: bool = False
    sent: dict[str, int] = {}


_encoder = msgspec.json.Encoder()
_marker_decoder = msgspec.json.Decoder(CommitMarker)
_progress_decoder = msgspec.json.Decoder(_ProgressRecord)


def source_name(source: TopicPartition) -> str:
    return f"{source.topic}:{source.partition}"


def parse_source(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition(":")
    return TopicPartition(topic, int(partition))


def encode_marker(marker: CommitMarker) -> bytes:
    return _encoder.encode(marker)


def decode_marker(raw: bytes) -> CommitMarker:
    try:
        marker = _marker_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"a changelog's commit marker cannot be read: {error}") from error
    if marker.version > FORMAT:
        raise DecodeError(
            f"a newer version of Tidegate wrote this changelog (format {marker.version}; this version reads up to "
            f"{FORMAT}). Upgrade."
        )
    return marker


def encode_progress(progress: Progress, run: str, epoch: int) -> bytes:
    sent = {source_name(source): position for source, position in progress.sent.items()}
    record = _ProgressRecord(run=run, epoch=epoch, watermark=progress.watermark, idle=progress.idle, sent=sent)
    return _encoder.encode(record)


def decode_progress(sender: bytes, raw: bytes, run: str) -> Progress | None:
    """None: the record belongs to another run."""
    record = _progress_decoder.decode(raw)
    if record.run != run:
        return None
    sent = {parse_source(name): position for name, position in record.sent.items()}
    return Progress(sender=sender.decode(), watermark=record.watermark, idle=record.idle, sent=sent)

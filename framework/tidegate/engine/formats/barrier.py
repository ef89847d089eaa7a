"""Records about checkpoints on the control topic that tasks read or write.

The barrier, under one key: the checkpoint that the leader began last, later with its outcome. A task's `Opened` record:
a task that has opened cannot take the snapshot of an epoch that it is already in.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from tidegate.engine.formats.control_record import ControlRecords
from tidegate.errors import DecodeError
from tidegate.logs.base import NewRecord

__all__ = (
    "CHECKPOINT_KEY",
    "OPENED",
    "OWN_PREFIX",
    "CheckpointRecord",
    "Opened",
    "checkpoint_record",
    "decode_checkpoint",
)

OWN_PREFIX: Final = b"tidegate/"
"""Prefix of the control topic's keys that are not names of tasks."""
CHECKPOINT_KEY: Final = b"tidegate/checkpoint"


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest checkpoint. While it is `begun`, this is the barrier."""

    run: str
    epoch: int
    state: Literal["begun", "complete", "aborted"]
    started_ms: int
    name: str | None = None
    """The name of a savepoint; None: a checkpoint."""
    stop: bool = False
    """Tasks process nothing after it; when it is complete, the workers stop."""
    base: int | None = None
    """The newest complete checkpoint, whose files can be shared."""
    request: str = ""
    """The id of the request that triggered it; empty: the interval did."""
    reason: str = ""
    """Why it was aborted."""
    ended_ms: int = 0
    size: int = 0
    uploaded: int = 0


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    epoch: int
    """The epoch of its commit marker."""


OPENED: Final = ControlRecords(b"tidegate/opened/", Opened)
"""By task."""

_encoder: Final = msgspec.json.Encoder()
_checkpoints: Final = msgspec.json.Decoder(CheckpointRecord)


def checkpoint_record(record: CheckpointRecord, now: int) -> NewRecord:
    return CHECKPOINT_KEY, _encoder.encode(record), now, ()


def decode_checkpoint(raw: bytes) -> CheckpointRecord:
    try:
        return _checkpoints.decode(raw)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"the record of the last checkpoint on the control topic cannot be read: {error}") from error

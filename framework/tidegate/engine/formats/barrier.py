"""What the control topic says about checkpoints, as far as tasks must know it.

The leader's record, under one key: which checkpoint was begun last, and what became of it. A task's own, when it has
opened: from then on it cannot take the snapshot of an epoch that it has already entered.
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
"""What keys on the control topic begin with that are not the names of tasks."""
CHECKPOINT_KEY: Final = b"tidegate/checkpoint"


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest checkpoint. While it is `begun`, this is the barrier."""

    run: str
    epoch: int
    state: Literal["begun", "complete", "aborted"]
    started_ms: int
    name: str | None = None
    """Of a savepoint."""
    stop: bool = False
    """Tasks handle nothing after it, and when it is complete the workers end."""
    base: int | None = None
    """The newest complete checkpoint: its files need not be uploaded again."""
    request: str = ""
    """Which request asked for it; empty: the interval."""
    reason: str = ""
    """Why it was aborted."""
    ended_ms: int = 0
    size: int = 0
    uploaded: int = 0


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    epoch: int
    """The one that its marker names."""


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
        raise DecodeError(f"the control topic's record of the last checkpoint cannot be read: {error}") from error

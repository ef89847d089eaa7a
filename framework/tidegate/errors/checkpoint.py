"""A checkpoint or savepoint cannot be taken or used."""

from __future__ import annotations

from tidegate.errors.base import TidegateError

__all__ = (
    "CheckpointDamagedError",
    "CheckpointError",
    "CheckpointFailedError",
    "CheckpointNotFoundError",
    "CheckpointStorageError",
    "NoWorkerError",
)


class CheckpointError(TidegateError):
    """A checkpoint or savepoint cannot be taken or used."""


class CheckpointNotFoundError(CheckpointError):
    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(
            f"there is no checkpoint or savepoint at {where}; 'tidegate savepoint list' shows what there is"
        )


class CheckpointDamagedError(CheckpointError):
    def __init__(self, where: str, detail: str) -> None:
        self.where, self.detail = where, detail
        super().__init__(f"{where} is damaged: {detail}. Use another checkpoint, or restore the file.")


class CheckpointStorageError(CheckpointError):
    def __init__(self, url: str, cause: object) -> None:
        self.url, self.cause = url, cause
        detail = f"{type(cause).__name__}: {cause}" if isinstance(cause, BaseException) else str(cause)
        super().__init__(
            f"the checkpoint storage {url} cannot be used: {detail}. Check its free space, its address "
            f"(checkpoint_storage) and its credentials; processing continues meanwhile."
        )


class CheckpointFailedError(CheckpointError):
    def __init__(self, epoch: int, reason: str) -> None:
        self.epoch, self.reason = epoch, reason
        what = f"checkpoint {epoch} was aborted" if epoch else "no checkpoint was started"
        super().__init__(f"{what}: {reason.rstrip('.')}. Processing continues.")


class NoWorkerError(CheckpointError):
    def __init__(self, app: str) -> None:
        self.app = app
        super().__init__(
            f"no worker of {app!r} runs, and only a worker takes checkpoints. Start one with 'tidegate worker'."
        )

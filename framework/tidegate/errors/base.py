"""The root of the tree, and the errors that end a worker."""

from __future__ import annotations

__all__ = (
    "RunOverError",
    "ServiceFailedError",
    "TidegateError",
)


class TidegateError(Exception):
    """The root of all errors that Tidegate raises on purpose."""


class RunOverError(TidegateError):
    def __init__(self, app: str, run: str, current: str, savepoint: str) -> None:
        self.app, self.run, self.current, self.savepoint = app, run, current, savepoint
        began = f", which was restored from {savepoint}" if savepoint else ""
        super().__init__(
            f"this worker belongs to run {run} of {app!r}, but the current run is {current}{began}. Work that this "
            f"worker had not committed by then is discarded. Restart it to join run {current}."
        )


class ServiceFailedError(TidegateError):
    def __init__(self, service: str, where: str, cause: BaseException) -> None:
        self.service, self.where, self.cause = service, where, cause
        super().__init__(
            f"service {service!r} stopped at {where}: {type(cause).__name__}: {cause}\n"
            f"Nothing of that record was committed; it is read again at the next start. Fix the handler, or choose "
            f"an error policy for such records: @app.process(..., errors=tidegate.DEAD_LETTER), SKIP or retry(...)."
        )

"""One record is wrong."""

from __future__ import annotations

from tidegate.errors.base import TidegateError

__all__ = (
    "DataError",
    "DecodeError",
    "EncodeError",
    "HandlerTimeoutError",
    "MisplacedKeyError",
    "MissingKeyError",
    "RecordRefusedError",
    "RecordTooLargeError",
    "ShuffleStepError",
    "TombstoneError",
)


class DataError(TidegateError):
    """One record is wrong. The service's error policy decides what happens to it; other records are processed."""


class DecodeError(DataError):
    """Bytes that are not of the declared type."""


class EncodeError(DataError):
    """A value that is not of the declared type."""


class TombstoneError(EncodeError):
    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"None is written as a tombstone, a record without a value, and {topic!r} takes none. "
            f"Declare the topic with compact=True or value_type=X | None."
        )


class MissingKeyError(DataError):
    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"a record of {topic!r} has no key, and a keyed service needs one. "
            f"Send it with a key, or give the service key_by=... to derive it from the value."
        )


class MisplacedKeyError(DataError):
    def __init__(self, topic: str, partition: int, expected: int, key: bytes) -> None:
        self.topic, self.partition, self.expected, self.key = topic, partition, expected, key
        super().__init__(
            f"the key {key!r} of {topic!r} lies in partition {partition}, but murmur2 assigns it to {expected}: "
            f"its producer uses another partitioner (librdkafka's default is CRC32). "
            f"Set the producer's partitioner to murmur2, or give the service key_by=... to repartition the records."
        )


class RecordTooLargeError(DataError):
    def __init__(self, topic: str, size: int, limit: int) -> None:
        self.topic, self.size, self.limit = topic, size, limit
        limit_text = f" of {limit:,} bytes" if limit else ""
        super().__init__(f"{size:,} bytes for {topic} are over the limit{limit_text} for a record")


class RecordRefusedError(DataError):
    def __init__(self, topic: str, reason: str) -> None:
        self.topic, self.reason = topic, reason
        super().__init__(f"the log refuses a record for {topic}: {reason}")


class ShuffleStepError(DataError):
    def __init__(self, topic: str, error: Exception) -> None:
        self.topic, self.error = topic, error
        super().__init__(
            f"a function of the shuffle of {topic!r} failed: {type(error).__name__}: {error}. "
            f"Its functions (filter, project, combine, the key) take any value of the topic."
        )


class HandlerTimeoutError(DataError):
    def __init__(self, service: str, seconds: float) -> None:
        self.service, self.seconds = service, seconds
        super().__init__(f"a handler of {service!r} did not finish within {seconds:g} s (its timeout=)")

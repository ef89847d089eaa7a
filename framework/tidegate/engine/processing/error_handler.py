"""Applies the error policy of a service to failed records, timers and messages: retry, skip, dead letter or stop."""

from __future__ import annotations

import enum
import logging
import traceback

from tidegate.engine.processing.context import Stamp, TaskContext, origin_of, own_headers
from tidegate.engine.processing.mailbox import Mailbox
from tidegate.engine.processing.output import Emitted
from tidegate.engine.processing.work_item import WorkItem
from tidegate.engine.runtime.metrics import TaskMetrics
from tidegate.engine.topology.shuffle import ShuffleHandler
from tidegate.errors import (
    DecodeError,
    MisplacedKeyError,
    MissingKeyError,
    RejectedError,
    ServiceFailedError,
    StorageFullError,
    StoreError,
)
from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.policies import DeadLetter, Retry, Skip
from tidegate.functions.topics import TopicDefinition
from tidegate.logs.base import Headers, TopicPartition

__all__ = ("ErrorHandler", "FailureAction", "dead_letter_headers")

logger = logging.getLogger(__name__)

_NOT_RETRYABLE = (DecodeError, MissingKeyError, MisplacedKeyError)
"""Errors that a retry cannot fix."""


class FailureAction(enum.Enum):
    RETRY = enum.auto()
    GIVEN_UP = enum.auto()


class ErrorHandler:
    def __init__(
        self,
        definition: ServiceDefinition,
        dead_letters: TopicDefinition | None,
        stamp: Stamp,
        mail: Mailbox,
        metrics: TaskMetrics,
    ) -> None:
        self._definition, self._dead_letters, self._stamp, self._metrics = definition, dead_letters, stamp, metrics
        self._mail = mail

    def decide(self, work: WorkItem, error: BaseException, context: TaskContext) -> FailureAction:
        """Skip the work item or send it to the dead letters, unless the policy retries it. ServiceFailedError: the
        policy is to stop.

        Failures of the store and the disk are not caused by a record: they are raised, whatever the policy is."""
        if isinstance(error, StoreError | StorageFullError):
            raise error
        if isinstance(error, RejectedError) and work.input is not None and work.input.topic.mailbox:
            logger.info("%s: %s is rejected: %s", self._definition.name, work.where, error)
            self._mail.give_up(context, work, error)
            return FailureAction.GIVEN_UP
        policy = self._definition.errors
        if isinstance(policy, Retry):
            if work.attempt < policy.times and _retryable(work, error):
                logger.warning("%s: %s failed (%s), will be retried", self._definition.name, work.where, error)
                self._metrics.retries.inc()
                return FailureAction.RETRY
            policy = policy.then
        if isinstance(policy, Skip):
            logger.warning("%s: %s is skipped: %s: %s", self._definition.name, work.where, type(error).__name__, error)
            self._metrics.skipped.inc()
        elif isinstance(policy, DeadLetter) and self._dead_letters is not None:
            context.emitted.extend(self._dead_letter(self._dead_letters, work, error))
            self._metrics.dead_letters.inc()
        else:
            raise ServiceFailedError(self._definition.name, work.where, error) from error
        self._mail.give_up(context, work, error)
        return FailureAction.GIVEN_UP

    def delay(self, work: WorkItem) -> float:
        policy = self._definition.errors
        return policy.delay(work.attempt) if isinstance(policy, Retry) else 0.0

    def _dead_letter(self, topic: TopicDefinition, work: WorkItem, error: BaseException) -> Emitted:
        """The original key and value, with the error and the origin in the headers."""
        key = work.record.key if work.record is not None else work.key
        value = work.record.value if work.record is not None else None
        timestamp = work.record.timestamp if work.record is not None else work.timestamp
        target = TopicPartition(topic.name, topic.partition_for(key or b""))
        headers = (*dead_letter_headers(work, error), *self._stamp.headers)
        return target, key, value, timestamp, headers


def _retryable(work: WorkItem, error: BaseException) -> bool:
    """Whether a retry could succeed. The functions of a shuffle use no other system, so they would fail again."""
    shuffled = work.input is not None and isinstance(work.input.handler, ShuffleHandler)
    return not shuffled and not isinstance(error, _NOT_RETRYABLE)


def dead_letter_headers(work: WorkItem, error: BaseException) -> Headers:
    trace = "".join(traceback.format_exception(error))
    headers = [
        ("error-type", type(error).__qualname__.encode()),
        ("error-message", str(error).encode()),
        ("error-traceback", trace.encode()),
        ("attempts", str(work.attempt + 1).encode()),
    ]
    if work.timer is not None:
        headers += [("timer", work.timer.name.encode()), ("timer-at", str(work.timer.at).encode())]
    if work.input is not None and work.record is not None:
        origin = origin_of(work.record, work.input.source)
        headers += [
            ("origin-topic", origin.topic.encode()),
            ("origin-partition", str(origin.partition).encode()),
            ("origin-offset", str(origin.offset).encode()),
            *own_headers(work.record),
        ]
    return headers

"""What is said about checkpoints on the control topic, besides the leader's record (`engine.barriers`).

tidegate/report/TASK     a task's snapshot of an epoch is in the storage, or cannot be
tidegate/request/ID      somebody asks for a checkpoint or savepoint; removed when it is answered and heard
tidegate/answer/ID       what became of it
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.logs.base import NewRecord

__all__ = (
    "ANSWER_PREFIX",
    "REPORT_PREFIX",
    "REQUEST_PREFIX",
    "Answer",
    "Report",
    "Request",
    "answer_record",
    "decode_answer",
    "decode_report",
    "decode_request",
    "report_record",
    "request_record",
)

REPORT_PREFIX: Final = b"tidegate/report/"
REQUEST_PREFIX: Final = b"tidegate/request/"
ANSWER_PREFIX: Final = b"tidegate/answer/"


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run: str
    epoch: int
    path: str = ""
    """Where the task has described its snapshot, within the app's storage."""
    uploaded: int = 0
    error: str = ""
    """Why there is none."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | None = None
    """Of a savepoint; None: a checkpoint."""
    stop: bool = False
    """The app is to stop with it."""
    asked_ms: int = 0
    until_ms: int = 0
    """How long somebody waits for the answer; 0: nobody knows."""

    def over(self, now: int) -> bool:
        """Whoever asked has ended without taking it back: a worker that starts tomorrow must not stop for it."""
        return 0 < self.until_ms < now


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    epoch: int = 0
    error: str = ""
    """Why there is no checkpoint; empty: there is."""


_encoder: Final = msgspec.json.Encoder()
_reports: Final = msgspec.json.Decoder(Report)
_requests: Final = msgspec.json.Decoder(Request)
_answers: Final = msgspec.json.Decoder(Answer)


def report_record(task: str, report: Report, now: int) -> NewRecord:
    return REPORT_PREFIX + task.encode(), _encoder.encode(report), now, ()


def request_record(id_: str, request: Request | None, now: int) -> NewRecord:
    return REQUEST_PREFIX + id_.encode(), None if request is None else _encoder.encode(request), now, ()


def answer_record(id_: str, answer: Answer | None, now: int) -> NewRecord:
    return ANSWER_PREFIX + id_.encode(), None if answer is None else _encoder.encode(answer), now, ()


def decode_report(raw: bytes) -> Report:
    return _reports.decode(raw)


def decode_request(raw: bytes) -> Request:
    return _requests.decode(raw)


def decode_answer(raw: bytes) -> Answer:
    return _answers.decode(raw)

"""Bodies of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = (
    "ActorView",
    "BatchRequest",
    "BatchValues",
    "CheckpointList",
    "KeyValue",
    "KeysPage",
    "MessageRequest",
    "ProblemDetails",
    "RecordsRequest",
    "RecordsSent",
    "Reply",
    "SavepointRequest",
    "ServiceList",
    "ServiceView",
    "Taken",
    "Told",
    "TopicList",
    "WorkerList",
)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProblemDetails(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Any] | None = None


# ------------------------------------------------------------------------------------------------------------- state


class KeyValue(BaseModel):
    key: Any
    value: Any


class KeysPage(BaseModel):
    items: list[KeyValue]
    cursor: str | None = Field(description="For the next page; null: there is no more.")


class BatchRequest(Strict):
    keys: list[Any] = Field(description="Keys as JSON: text, whole numbers, or whatever the service's keys are.")


class BatchValue(BaseModel):
    key: Any
    found: bool
    value: Any = None


class BatchValues(BaseModel):
    values: list[BatchValue] = Field(description="In the order of the keys.")


class TimerView(BaseModel):
    name: str
    at: int = Field(description="Milliseconds since 1970.")
    time: Literal["event", "processing"]


class ActorView(BaseModel):
    key: Any
    states: dict[str, Any] = Field(description="Those that have a value for this key.")
    timers: list[TimerView]


# ---------------------------------------------------------------------------------------------------------- services


class StateView(BaseModel):
    name: str
    kind: Literal["value", "list", "map", "reducing", "aggregating", "operator"]
    type: str
    queryable: bool
    ttl_ms: int | None = None


class ServiceView(BaseModel):
    name: str
    description: str
    inputs: list[str]
    outputs: list[str]
    states: list[StateView]
    timers: list[str]
    key_type: str
    tasks: int
    guarantee: str
    rekeyed: bool = Field(description="Its input is placed by another key, through an internal topic.")
    dead_letters: str | None = None
    messages: list[str] = Field(default_factory=list, description="What can be told or asked; none: nothing.")


class ServiceList(BaseModel):
    app: str
    run: str
    services: list[ServiceView]


class TopicView(BaseModel):
    name: str
    type: str
    keyed: bool
    partitions: int
    records: int | None = Field(description="Offsets between start and end, over all partitions.")
    dead_letters: bool


class TopicList(BaseModel):
    topics: list[TopicView]


class Record(Strict):
    value: Any
    key: Any = None
    timestamp: int | None = Field(None, description="Milliseconds since 1970; none: the event's own time, or now.")
    headers: dict[str, Any] | None = None


class RecordsRequest(Strict):
    records: list[Record]


class RecordsSent(BaseModel):
    records: int
    position: str = Field(description="Read with ?min_position= this to see what the records did.")
    again: bool = Field(description="Nothing was written: an earlier request with the same Idempotency-Key did.")


class MessageRequest(Strict):
    key: Any
    message: Any = Field(description="Of one of the types that the service takes.")
    type: str | None = Field(None, description="Which of them; may be left out if there is only one.")
    timeout: float | None = Field(None, gt=0, le=60, description="Of an ask: how many seconds to wait.")


class Told(BaseModel):
    position: str = Field(description="Read with ?min_position= this to see what the message did.")


class Reply(BaseModel):
    reply: Any = Field(description="What the handler replied; it is committed.")


# ----------------------------------------------------------------------------------------------- checkpoints, workers


class SavepointRequest(Strict):
    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$", description="How it is called from then on.")


class CheckpointList(BaseModel):
    progress: Any = Field(description="What is under way, and how the last ones ended.")
    checkpoints: list[Any]
    error: str = Field(description="Why the storage cannot list them; empty: it can.")


class Taken(BaseModel):
    epoch: int | None = Field(description="Its number; null: it is still under way.")
    complete: bool


class WorkerList(BaseModel):
    workers: list[Any]

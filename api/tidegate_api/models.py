"""Request and response bodies, for validation and for the OpenAPI document."""

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
    cursor: str | None = Field(description="The cursor of the next page; null: this is the last page.")


class BatchRequest(Strict):
    keys: list[Any] = Field(description="Keys as JSON, of the service's key type.")


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
    states: dict[str, Any] = Field(description="The states that have a value for this key.")
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
    rekeyed: bool = Field(description="Its input is repartitioned by another key, through an internal topic.")
    dead_letters: str | None = None
    messages: list[str] = Field(default_factory=list, description="The types of the messages that it handles.")


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
    timestamp: int | None = Field(None, description="Milliseconds since 1970; null: the event's own time, or now.")
    headers: dict[str, Any] | None = None


class RecordsRequest(Strict):
    records: list[Record]


class RecordsSent(BaseModel):
    records: int
    position: str = Field(description="Pass it as ?min_position= to read state that includes these records.")
    again: bool = Field(description="Nothing was written: an earlier request with this Idempotency-Key was executed.")


class MessageRequest(Strict):
    key: Any
    message: Any = Field(description="Of a type that the service handles.")
    type: str | None = Field(None, description="The type of the message; optional if the service handles only one.")
    timeout: float | None = Field(None, gt=0, le=60, description="Seconds that an ask waits for the reply.")


class Told(BaseModel):
    position: str = Field(description="Pass it as ?min_position= to read state that includes this message.")


class Reply(BaseModel):
    reply: Any = Field(description="The handler's committed reply.")


# ----------------------------------------------------------------------------------------------- checkpoints, workers


class SavepointRequest(Strict):
    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$", description="The savepoint's name.")


class CheckpointList(BaseModel):
    progress: Any = Field(description="The checkpoint in progress, and the outcome of the last ones.")
    checkpoints: list[Any]
    error: str = Field(description="Why the storage cannot list them; empty: no error.")


class Taken(BaseModel):
    epoch: int | None = Field(description="The number of the checkpoint; null: it is still in progress.")
    complete: bool


class WorkerList(BaseModel):
    workers: list[Any]

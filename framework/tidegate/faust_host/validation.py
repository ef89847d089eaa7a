"""What a declaration may say: names, topics, keys, outputs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal

from faust.topics import Topic as FaustTopic

from tidegate.codecs import may_have, type_name
from tidegate.errors import DefinitionError
from tidegate.faust_host.topics import Topic
from tidegate.functions.factories import KeyFunction
from tidegate.functions.topics import TopicDefinition
from tidegate.time.clock import Duration, to_duration
from tidegate.time.sources import TimeSource
from tidegate.time.watermarks import WatermarkStrategy

__all__ = (
    "KeyBy",
    "check_field",
    "check_limits",
    "check_name",
    "check_options",
    "check_time",
    "check_topic",
    "getter",
    "key_functions",
    "outputs_of",
    "snake",
)

KeyBy = str | Callable[[Any], Any]


def check_name(kind: Literal["app", "topic", "service"], name: str) -> None:
    legal = name and all(letter.isalnum() or letter in "._-" for letter in name) and name.isascii()
    if not legal or len(name) > 200 or name in (".", ".."):
        article = "an" if kind == "app" else "a"
        raise DefinitionError(f"{name!r} cannot be the name of {article} {kind}: use letters, digits, '.', '_' and '-'")


def check_options(app: str, options: Iterable[str], known: Collection[str]) -> None:
    """Faust ignores what it does not know, so that a misspelt option would silently do nothing."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ", and neither has Faust"
            raise DefinitionError(f"App({app!r}, ...) has no option {name!r}{meant}")


def check_time(what: str, time: Any, watermark: Any) -> None:
    if not isinstance(time, TimeSource | None):
        raise DefinitionError(
            f"{what}: time={time!r} is no source of time; use EventTime({time if isinstance(time, str) else '...'!r}), "
            f"BrokerTime(), IngestionTime() or ProcessingTime()"
        )
    if not isinstance(watermark, WatermarkStrategy | None):
        raise DefinitionError(
            f"{what}: watermark={watermark!r} is no strategy; use BoundedOutOfOrderness(by=...), Monotonic() or "
            f"Punctuated(mark=...)"
        )


def check_limits(topic: str, partitions: int | None, retention: Duration | None, retention_bytes: int | None) -> None:
    """A limit below zero would remove records at once: Kafka's -1, for ever, is 0 here, as in the settings."""
    if partitions is not None and partitions < 1:
        raise DefinitionError(f"topic {topic!r}: partitions must be at least 1, not {partitions}")
    if retention is not None and to_duration(retention) < 0:
        raise DefinitionError(f"topic {topic!r}: retention must be at least 0, which keeps records for ever")
    if retention_bytes is not None and retention_bytes < 1:
        raise DefinitionError(f"topic {topic!r}: retention_bytes must be at least 1; leave it out for no limit")


def check_field(what: str, field: Any, type_: Any) -> None:
    """A misspelt field would fail for every record."""
    if isinstance(field, str) and not may_have(type_, field):
        raise DefinitionError(f"{what} {field!r}, and {type_name(type_)} has no such field")


def check_topic(what: str, topic: Any) -> None:
    if isinstance(topic, FaustTopic) and not isinstance(topic, Topic):
        raise DefinitionError(
            f"{what} {topic}, a topic of Faust's alone: it was made with several names, or with options that only "
            f"Faust knows. For services: app.topic(name, value_type=..., key=..., partitions=..., retention=..., ...)"
        )
    if not isinstance(topic, Topic):
        raise DefinitionError(f"{what} {topic!r}, which is no topic made by app.topic(...)")


def snake(name: str) -> str:
    """matchmaker stays; MatchMaker becomes match_maker."""
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name)).replace("__", "_")


def getter(key: KeyBy | None) -> Callable[[Any], Any] | None:
    if key is None or callable(key):
        return key
    field = key
    return lambda value: value[field] if isinstance(value, dict) else getattr(value, field)


def outputs_of(label: str, to: Topic | Iterable[Topic] | Mapping[str, Topic]) -> dict[str, TopicDefinition]:
    if isinstance(to, Mapping):
        named = list(to.items())
    else:
        topics = [to] if isinstance(to, FaustTopic | str) else list(to)
        named = [(getattr(topic, "name", repr(topic)), topic) for topic in topics]
    for _, topic in named:
        check_topic(f"service {label!r} emits to", topic)
    if len(dict(named)) != len(named):
        raise DefinitionError(f"service {label!r}: to= takes topics made by app.topic(...), each once")
    return {name: topic.definition for name, topic in named}


def key_functions(inputs: tuple[Topic, ...], key_by: KeyBy | Mapping[Topic, KeyBy] | None) -> tuple[KeyFunction, ...]:
    """For each input: from a value to its key; None: as the records are keyed."""
    if key_by is None:
        return (None,) * len(inputs)
    if isinstance(key_by, Mapping):
        missing = [topic.name for topic in inputs if topic not in key_by]
        if missing:
            raise DefinitionError(f"key_by= says nothing about {', '.join(missing)}")
        chosen: list[KeyBy] = [key_by[topic] for topic in inputs]
    else:
        chosen = [key_by] * len(inputs)
    for topic, item in zip(inputs, chosen, strict=True):
        check_field(f"key_by= takes the key of {topic.name!r} from", item, topic.definition.codec.type)
    return tuple(map(getter, chosen))

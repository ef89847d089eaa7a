"""What a declaration may say: names, topics, keys, outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

from faust.topics import Topic as FaustTopic

from tidegate.boot.topics import Topic
from tidegate.errors import DefinitionError
from tidegate.functions.topics import TopicDefinition

__all__ = ("KeyBy", "check_name", "check_topic", "getter", "key_functions", "outputs_of", "snake")

KeyBy = str | Callable[[Any], Any]


def check_name(kind: Literal["app", "topic", "service"], name: str) -> None:
    legal = name and all(letter.isalnum() or letter in "._-" for letter in name) and name.isascii()
    if not legal or len(name) > 200 or name in (".", ".."):
        raise DefinitionError(f"{name!r} cannot be the name of a {kind}: use letters, digits, '.', '_' and '-'")


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
        topics = [to] if isinstance(to, FaustTopic) else list(to)
        named = [(getattr(topic, "name", repr(topic)), topic) for topic in topics]
    for _, topic in named:
        check_topic(f"service {label!r} emits to", topic)
    if len(dict(named)) != len(named):
        raise DefinitionError(f"service {label!r}: to= takes topics made by app.topic(...), each once")
    return {name: topic.definition for name, topic in named}


def key_functions(
    inputs: tuple[Topic, ...], key_by: KeyBy | Mapping[Topic, KeyBy] | None
) -> tuple[Callable[[Any], Any], ...] | None:
    if key_by is None:
        return None
    if isinstance(key_by, Mapping):
        missing = [topic.name for topic in inputs if topic not in key_by]
        if missing:
            raise DefinitionError(f"key_by= says nothing about {', '.join(missing)}")
        chosen: list[KeyBy] = [key_by[topic] for topic in inputs]
    else:
        chosen = [key_by] * len(inputs)
    return tuple(cast("Callable[[Any], Any]", getter(item)) for item in chosen)

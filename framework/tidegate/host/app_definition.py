"""What an app declares, apart from how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.functions.definition import ServiceDefinition
from tidegate.functions.topics import TopicDefinition
from tidegate.settings_resolution import Resolved, resolve

__all__ = ("AppDefinition",)


@dataclass(frozen=True, kw_only=True)
class AppDefinition:
    """An app's topics and services, and the settings that its code gives."""

    id: str
    services: tuple[ServiceDefinition, ...]
    topics: tuple[TopicDefinition, ...]
    options: Mapping[str, Any]
    """Settings given in the code."""

    def resolve(self, flags: Mapping[str, Any] | None = None) -> Resolved:
        return resolve(self.options, flags)

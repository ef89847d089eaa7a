"""References to topics and services, as the context and the harness take them in `emit`, `tell` and `send`.

They carry the types that type checkers use there. `tidegate.Topic` and `tidegate.Service` derive from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic

from tidegate.functions.declaration.type_variables import TypeVar
from tidegate.functions.topics import TopicDefinition

__all__ = ("ServiceReference", "TopicReference")

T = TypeVar("T", default=Any)
K = TypeVar("K", contravariant=True, default=Any)


class TopicReference(ABC, Generic[T]):
    """A topic with values of type T."""

    @property
    @abstractmethod
    def definition(self) -> TopicDefinition:
        """The declaration."""

    @property
    def name(self) -> str:
        """The topic's name in the log."""
        return self.definition.name


class ServiceReference(ABC, Generic[K]):
    """A service with keys of type K."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The service's name in the app."""

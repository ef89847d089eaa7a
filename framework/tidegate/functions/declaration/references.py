"""Typed references to topics and services, as contexts and test harnesses take them.

`tidegate.Topic` and `tidegate.Service` derive from these. They carry the types by which emitting, sending and telling
are checked.
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
    """A topic whose values are of type T."""

    @property
    @abstractmethod
    def definition(self) -> TopicDefinition:
        """The declaration of the topic."""

    @property
    def name(self) -> str:
        """Its name on the log."""
        return self.definition.name


class ServiceReference(ABC, Generic[K]):
    """A service whose keys are of type K."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in the app."""

"""What a topic and a service are to those that name one: a context that emits or tells, a harness that sends.

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
        """What was declared."""

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

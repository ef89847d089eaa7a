"""The steps of a shuffle: it can filter, project and combine values before it sends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.codecs import Codec, type_name
from tidegate.errors import DefinitionError, EncodeError

__all__ = ("ShuffleSteps",)


@dataclass(frozen=True, kw_only=True)
class ShuffleSteps:
    """The steps of a shuffle, applied in this order. They are plain functions of values, without context or state.

    If a step fails, its record has no effect, and the error policy of the service behind the shuffle applies. Steps are
    not retried, since they would fail again: `retry(...)` applies its `then` policy at once."""

    filter: Callable[[Any], bool] | None = None
    """Whether a value is sent. The watermark advances for values that are not sent, too."""
    project: Callable[[Any], Any] | None = None
    """From a value to the value that is sent instead. The key is that of the original value."""
    combine: Callable[[Any, Any], Any] | None = None
    """From two values of one key, the earlier one first, to a combined value. The values of a key are combined until
    the next commit, which sends one record for the key, with the latest of the timestamps and without headers. The
    function may mutate and return the first value, but must not leave it changed if it fails."""
    codec: Codec[Any] | None = None
    """The codec of what `project` returns; None: that of the topic."""

    def __post_init__(self) -> None:
        if self.filter is None and self.project is None and self.combine is None:
            raise DefinitionError("a shuffle without steps needs no ShuffleSteps: leave them out")
        if self.codec is not None and self.project is None:
            raise DefinitionError("codec= of ShuffleSteps is the codec of what project= returns: give both, or neither")

    def codec_of(self, input_codec: Codec[Any]) -> Codec[Any]:
        """The codec of the values that are sent."""
        return input_codec if self.codec is None else self.codec

    def apply(self, value: Any, input_codec: Codec[Any]) -> tuple[bool, Any]:
        """Filters and projects. Returns whether a value is sent, and the value."""
        if self.filter is not None and not self.filter(value):
            return False, None
        if self.project is None:
            return True, value
        projected, codec = self.project(value), self.codec_of(input_codec)
        if not codec.check(projected):
            raise EncodeError(
                f"project= of a shuffle returns {type_name(type(projected))}, not {type_name(codec.type)}: return "
                f"values of that type, or declare codec="
            )
        return True, projected

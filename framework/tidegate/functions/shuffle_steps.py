"""The steps of a shuffle before an input: it may filter, project and combine values before it sends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.codecs import Codec, type_name
from tidegate.errors import DefinitionError, EncodeError

__all__ = ("ShuffleSteps",)


@dataclass(frozen=True, kw_only=True)
class ShuffleSteps:
    """Steps of a shuffle, in this order. They are plain functions of values: they have neither context nor state.

    A step that fails leaves no trace of its record: the error policy of the service behind the shuffle decides about
    it. Steps are not repeated, for they would fail again: `retry(...)` goes at once to what it does then."""

    filter: Callable[[Any], bool] | None = None
    """Whether a value is sent. A dropped value still advances the watermark."""
    project: Callable[[Any], Any] | None = None
    """From a value to the value that is sent instead. The input's key is taken from the original value."""
    combine: Callable[[Any, Any], Any] | None = None
    """From two values of one key, the earlier one first, to the value that stands for both. The values of a key are
    combined until the commit, which sends one record for it, with the latest of their times and without their headers.
    It may change and return the first value unless it fails: then that must be as it was before."""
    codec: Codec[Any] | None = None
    """The codec of the values that `project` returns; None: the topic's."""

    def __post_init__(self) -> None:
        if self.filter is None and self.project is None and self.combine is None:
            raise DefinitionError("a shuffle without steps needs no ShuffleSteps: leave them out")
        if self.codec is not None and self.project is None:
            raise DefinitionError("codec= of ShuffleSteps is that of what project= returns: give both, or neither")

    def codec_of(self, read: Codec[Any]) -> Codec[Any]:
        """The codec of the sent values, for an input with this codec."""
        return read if self.codec is None else self.codec

    def apply(self, value: Any, read: Codec[Any]) -> tuple[bool, Any]:
        """Filter and project: whether a value is sent, and the value to send."""
        if self.filter is not None and not self.filter(value):
            return False, None
        if self.project is None:
            return True, value
        sent, codec = self.project(value), self.codec_of(read)
        if not codec.check(sent):
            raise EncodeError(
                f"project= of a shuffle returns {type_name(type(sent))} where {type_name(codec.type)} is sent"
            )
        return True, sent

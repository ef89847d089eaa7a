"""Responses with committed state: JSON, and headers that name the commits it includes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from starlette.responses import Response

from tidegate.serving import AsOfView, Position, ReadCommit, json_key, merge

__all__ = ("NO_STORE", "json_answer", "key_text", "merged_headers", "past_headers", "position_headers", "state_answer")

NO_STORE: Final = {"cache-control": "no-store"}
_KNOWN: Final = 1 << 61
"""Bound of real watermarks; beyond it, event time has not started or has ended."""


def position_headers(reached: Iterable[ReadCommit]) -> dict[str, str]:
    """Tidegate-Position, and the lowest watermark and checkpoint of the commits."""
    known = list(reached)
    headers = dict(NO_STORE)
    if not known:
        return headers
    position = known[0].position
    if len(known) > 1:
        position = merge(position.run, [one.position for one in known])
    headers["tidegate-position"] = str(position)
    markers = [one.marker for one in known if one.marker is not None]
    if markers:
        headers.update(_times(min(m.watermark for m in markers), min(m.epoch for m in markers)))
    return headers


def past_headers(past: AsOfView) -> dict[str, str]:
    """The headers of a response as of a checkpoint."""
    return {**NO_STORE, **_times(past.watermark, past.manifest.epoch)}


def _times(watermark: int, epoch: int) -> dict[str, str]:
    found = {}
    if -_KNOWN < watermark < _KNOWN:
        found["tidegate-watermark"] = str(watermark)
    if epoch > 0:
        found["tidegate-checkpoint"] = str(epoch)
    return found


def merged_headers(answers: Iterable[Mapping[str, str]], run: str, positions: Iterable[Position]) -> dict[str, str]:
    """The headers of a response that is merged from several workers."""
    known = list(answers)
    headers = {**NO_STORE, "tidegate-position": str(merge(run, positions))}
    for name in ("tidegate-watermark", "tidegate-checkpoint"):
        values = [int(found) for answer in known if (found := answer.get(name)) is not None]
        if values and len(values) == len(known):
            headers[name] = str(min(values))
    return headers


def key_text(key: bytes, key_type: Any) -> bytes:
    """A key as JSON. Integers may have any size; orjson supports 64 bits only."""
    found = json_key(key, key_type)
    return orjson.dumps(found) if key_type is str else json.dumps(found).encode()


def state_answer(body: bytes, headers: Mapping[str, str]) -> Response:
    return Response(body, 200, headers, "application/json")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, {**NO_STORE, **(headers or {})}, "application/json")

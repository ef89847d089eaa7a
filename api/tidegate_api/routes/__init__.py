"""The routes, by what they are about."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor

__all__ = ()


class _Anything(Convertor[str]):
    """The rest of a path, whatever is in it: Starlette's own `path` stops at a line's end."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anything", _Anything())

"""The routes, by resource."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor

__all__ = ()


class _Anything(Convertor[str]):
    """The rest of a path, with any characters: Starlette's own `path` does not match line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anything", _Anything())

"""Numbers as people write them."""

from __future__ import annotations

__all__ = ("count",)


def count(number: int, noun: str) -> str:
    """1 record, 2,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

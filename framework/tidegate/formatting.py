"""Formatting of numbers for log lines and tables."""

from __future__ import annotations

__all__ = ("count",)


def count(number: int, noun: str) -> str:
    """1 record, 2,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

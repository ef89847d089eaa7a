"""The history of the ledger as commands: those that created the stored data, and those that continue it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

__all__ = ("APP", "MORE", "STATES", "Command", "contents", "order", "orders", "replies", "settled", "withdraw")

APP = "ledger.py"
STATES = (
    *(
        f"customers.{name}"
        for name in (
            "total", "recent", "by_number", "by_item", "by_pair", "by_time", "by_raw", "highest", "mean", "odd",
            "lasting", "brief", "within",
        )
    ),
    "items.seen",
    "account.balance",
)  # fmt: skip
START = 1_600_000_000_000
MORE = (300, 360)
"""The orders that are sent when the stored data is opened again."""

Command = Callable[..., str]
"""Runs `tidegate`: arguments, and `stdin`. Returns what it prints."""


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"c{number % 13}",
        "item": "broken" if number % 50 == 7 else f"i{number % 7}",
        "amount": number * 17 % 101,
        "at": START + number * 100,
    }


def orders(first: int, end: int) -> str:
    """As `tidegate send` reads them."""
    return "".join(json.dumps(order(number)) + "\n" for number in range(first, end))


def withdraw(run: Command, key: str, amount: int, idempotency_key: str) -> int:
    message = json.dumps({"amount": amount})
    options = ("--message", "Withdraw", "--timeout", "60", "--idempotency-key", idempotency_key)
    return int(run("ask", APP, "account", key, message, *options))


def contents(run: Command) -> dict[str, Any]:
    """States, timers and outputs, as far as they are committed."""
    found: dict[str, Any] = {}
    for name in STATES:
        service, state = name.split(".")
        found[name] = _lines(run("state", "list", APP, service, state))
    found["timers"] = _lines(run("state", "timers", APP, "customers"))
    for topic in ("ledger-totals", "ledger.customers.dead-letters"):
        records = _lines(run("tail", APP, topic, "--from-beginning", "--until-end"))
        found[topic] = [{name: record[name] for name in ("key", "value")} for record in records]
    return {name: sorted(lines, key=json.dumps) for name, lines in found.items()}


def settled(found: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on the clock (timers that were due a minute later, and what lives for a second) or on the
    number of tasks, and with times as instants, whatever offset they are written with."""
    timers = [{name: timer[name] for name in ("key", "name")} for timer in found["timers"] if timer["name"] != "soon"]
    odd = sorted(number for task in found["customers.odd"] for number in task["value"])
    by_time = {
        line["key"]: sorted((_instant(text), number) for text, number in line["value"].items())
        for line in found["customers.by_time"]
    }
    return {
        **found,
        "timers": timers,
        "customers.brief": [],
        "customers.odd": odd,
        "customers.by_time": [{"key": key, "value": [list(pair) for pair in by_time[key]]} for key in sorted(by_time)],
    }


def _instant(text: str) -> float:
    return datetime.fromisoformat(json.loads(text) if text.startswith('"') else text).timestamp()


def _lines(printed: str) -> list[Any]:
    return [json.loads(line) for line in printed.splitlines()]


def replies(run: Command) -> list[int]:
    """The first message was handled before: it is answered with the same, and not handled again."""
    return [withdraw(run, "c1", 5, "first"), withdraw(run, "c2", 7, "second")]

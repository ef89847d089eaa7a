"""A test takes a reply for what it is not."""

from __future__ import annotations

import msgspec

from tidegate import App, Request
from tidegate.testing import AppHarness


class Balance(msgspec.Struct, frozen=True):
    cents: int


class Withdraw(msgspec.Struct, Request[Balance], frozen=True):
    cents: int


class Deposit(msgspec.Struct, frozen=True):
    cents: int


app = App("bank")
account = app.actor("account")


def test_withdraw() -> None:
    with AppHarness(app) as harness:
        cents: int = harness.ask(account, "ann", Withdraw(3))  # mistake: a Balance
        assert cents == 0

"""A test looks under a number, where keys are text."""

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


def test_state() -> None:
    with AppHarness(app) as harness:
        assert harness.state(account, "cents", 7) is None  # mistake: keys are str

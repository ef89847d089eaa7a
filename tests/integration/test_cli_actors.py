"""tell and ask, with and without a running worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import Project

BANK = """
from typing import Annotated

import msgspec

from tidegate import App, Context, Default, RejectedError, ValueState

app = App("bank")
account = app.actor("account")
number = app.actor("number", key_type=int)


class Deposit(msgspec.Struct):
    amount: int


class Withdraw(msgspec.Struct):
    amount: int


class Receipt(msgspec.Struct):
    balance: int


@account.on(Deposit)
async def deposit(ctx: Context, message: Deposit, balance: Annotated[ValueState[int], Default(0)]) -> None:
    balance.value += message.amount


@account.on(Withdraw, reply=Receipt)
async def withdraw(ctx: Context, message: Withdraw, balance: ValueState[int]) -> None:
    if message.amount > balance.value:
        raise RejectedError(f"{ctx.key} has only {balance.value}")
    balance.value -= message.amount
    ctx.reply(Receipt(balance.value))


@app.process(app.topic("notes", value_type=str), name="notary")
async def read(ctx: Context, note: str) -> None: ...


@number.on(str, name="say")
async def say(ctx: Context, message: str) -> None:
    ctx.reply(f"{message} {ctx.key + 1}")
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, bank=BANK)
    yield made
    made.close()


def test_the_command_line_sends_tells_and_asks(project: Project) -> None:
    told = project.run("tell", "bank.py", "account", "ann", '{"amount": 10}', "--message", "Deposit")
    assert told.stderr.startswith("Sent to the actor ann of account, in bank.account.mailbox[")
    with project.worker("bank.py"):
        withdraw = ("ask", "bank.py", "account", "ann", '{"amount": 3}', "--message", "Withdraw", "--timeout", "60")
        assert project.run(*withdraw, "--idempotency-key", "x").stdout == '{"balance":7}\n'
        assert project.run(*withdraw, "--idempotency-key", "x").stdout == '{"balance":7}\n'
        assert project.run(*withdraw).stdout == '{"balance":4}\n'
        assert project.run("ask", "bank.py", "number", "7", '"it is"', "--timeout", "60").stdout == '"it is 8"\n'
        assert project.run("state", "get", "bank.py", "account", "balance", "ann").stdout == "4\n"
        refused = project.run(*withdraw[:4], '{"amount": 30}', *withdraw[5:], code=1)
        assert "ann has only 4" in refused.stderr


def test_errors_fit_on_one_screen(project: Project) -> None:
    def fails(*arguments: str) -> str:
        return project.run(*arguments, code=1).stderr

    assert "service 'account' handles: Deposit, Withdraw. Choose one with --message" in fails(
        "tell", "bank.py", "account", "ann"
    )
    assert "'notary' handles no messages: @notary.on(MessageType)" in fails("ask", "bank.py", "notary", "ann")
    assert "handles no message 'Gone'" in fails("tell", "bank.py", "account", "ann", "--message", "Gone")
    wrong = fails("tell", "bank.py", "account", "ann", '{"amount": "x"}', "--message", "Deposit")
    assert "not a valid Deposit" in wrong
    assert "there is no service 'gone'" in fails("ask", "bank.py", "gone", "ann")
    late = fails("ask", "bank.py", "account", "ann", '{"amount": 1}', "--message", "Deposit", "--timeout", "0.2")
    assert "did not reply within 0.2 s" in late

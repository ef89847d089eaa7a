from __future__ import annotations

import asyncio

import pytest
from aiokafka import errors

from tidegate.errors import LogError, LogUnavailableError
from tidegate.logs.kafka.connection.broker_errors import RetryBudget, error_of, is_retriable, to_log_error


def test_no_code_is_no_error() -> None:
    assert error_of(0, "a[0]") is None


@pytest.mark.parametrize("code", [-1, 5, 6, 7, 14, 15, 16, 19, 51, 56, 78])
def test_codes_that_pass(code: int) -> None:
    error = error_of(code, "a[0]")
    assert error is not None
    assert is_retriable(error)
    assert isinstance(to_log_error(error, "asking"), LogUnavailableError)


@pytest.mark.parametrize("code", [1, 10, 32, 47, 87, 9999])
def test_codes_that_stay(code: int) -> None:
    error = error_of(code, "a[0]")
    assert error is not None
    assert not is_retriable(error)


def test_an_unknown_code_is_shown() -> None:
    assert "9999" in str(error_of(9999, "a[0]"))


@pytest.mark.parametrize("code", [45, 48, 49, 59])
def test_a_writer_that_the_brokers_have_forgotten_may_be_replaced(code: int) -> None:
    error = error_of(code, "a[0]")
    assert error is not None
    assert isinstance(to_log_error(error, "appending"), LogUnavailableError)


def test_an_authorization_error_names_the_acls() -> None:
    error = to_log_error(errors.TopicAuthorizationFailedError("secret"), "appending")
    assert isinstance(error, LogError)
    assert "ACLs" in str(error)


async def test_a_retry_budget_waits_for_retriable_errors_and_then_names_the_operation() -> None:
    patience = RetryBudget(0.05, "asking somebody")
    turns = 0

    async def ask() -> None:
        nonlocal turns
        while True:
            await patience.wait_or_raise(errors.RequestTimedOutError())
            turns += 1

    with pytest.raises(LogUnavailableError, match="asking somebody: no success"):
        await ask()
    assert turns >= 3


async def test_a_retry_budget_does_not_wait_for_permanent_errors() -> None:
    with pytest.raises(LogError):
        await RetryBudget(60, "asking").wait_or_raise(errors.MessageSizeTooLargeError())


async def test_a_retry_budget_limits_the_whole_operation() -> None:
    patience = RetryBudget(0.02, "asking")
    with pytest.raises(LogUnavailableError):
        async with patience.limited():
            await asyncio.sleep(60)


async def test_a_timeout_from_inside_stays_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with RetryBudget(60, "asking").limited():
            raise TimeoutError

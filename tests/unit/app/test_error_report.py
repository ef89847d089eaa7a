"""Errors take one screen, and say where the user's own code failed."""

from __future__ import annotations

from tidegate.errors import LogInUseError, ServiceFailedError
from tidegate_app.error_report import describe


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("boom")


def caught() -> ValueError:
    try:
        deep(50)
    except ValueError as error:
        return error
    raise AssertionError


def test_a_failed_handler_is_shown_with_the_end_of_its_traceback() -> None:
    text = describe(ServiceFailedError("svc", "topic[0] offset 1", caught()))

    assert "service 'svc' stopped at topic[0] offset 1: ValueError: boom" in text
    assert text.rstrip().endswith('raise ValueError("boom")')
    assert len(text.splitlines()) < 24


def test_an_error_of_ours_needs_no_traceback() -> None:
    from pathlib import Path

    text = describe(LogInUseError(Path("/data"), "process 7"))

    assert text.startswith("/data is held by process 7")
    assert "Traceback" not in text


def test_an_unexpected_error_explains_how_to_see_the_traceback() -> None:
    assert describe(caught()).endswith("--debug shows the full traceback.")


def test_a_file_that_fails_is_named() -> None:
    assert describe(PermissionError(13, "Permission denied", "/x")).startswith("/x: Permission denied. Give this user")
    assert describe(FileNotFoundError(2, "No such file or directory", "/x")) == "/x: No such file or directory."

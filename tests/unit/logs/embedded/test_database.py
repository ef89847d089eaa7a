"""Errors of RocksDB are translated into errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import LogError, LogFailedError, StorageFullError
from tidegate.logs.embedded.database import to_log_error


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("IO error: No space left on device: While appending", StorageFullError, "Free some space"),
        ("Permission denied (os error 13)", LogFailedError, r"\(os error 13\)\. Give this user access"),
        ("Corruption: bad block", LogFailedError, "the log in data failed: Corruption: bad block$"),
    ],
)
def test_an_error_of_the_database_becomes_one_of_the_log(text: str, kind: type[LogError], message: str) -> None:
    with pytest.raises(kind, match=message):
        raise to_log_error(Exception(text), Path("data"))

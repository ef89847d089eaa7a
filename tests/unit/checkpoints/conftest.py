"""Places for checkpoints: a directory, and a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3 import bucket


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path / 'checkpoints'}"
        return
    with bucket(monkeypatch) as name:
        yield f"s3://{name}/place"

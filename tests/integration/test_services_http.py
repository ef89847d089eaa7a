"""Ready-made services over HTTP: mounted in a line, and asked by POST."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.commands import Project

SHOP = """
from tidegate import App
from tidegate_services import Counters, Deduplicator, RateLimiter, SessionTracker

app = App("shop", partitions=2)
limiter = RateLimiter(app, rate=0.001, burst=2)
deduplicator = Deduplicator(app, within=3600)
tracker = SessionTracker(app, gap=3600)
counters = Counters(app, every=0.05)
"""
SECONDS = 60.0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, shop=SHOP)
    yield made
    made.close()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def test_all_library_services_answer_over_http(project: Project) -> None:
    port = free_port()
    with (
        project.worker("shop.py", "--api", f"127.0.0.1:{port}"),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1/services", timeout=SECONDS) as http,
    ):

        def ask(service: str, key: str, kind: str, message: dict[str, Any], **headers: str) -> Any:
            body = {"key": key, "type": kind, "message": message}
            answer = http.post(f"/{service}/ask", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            return answer.json()["reply"]

        assert [ask("rate_limiter", "ann", "Acquire", {})["allowed"] for _ in range(3)] == [True, True, False]
        once = {"Idempotency-Key": "one"}
        assert [ask("rate_limiter", "bob", "Acquire", {}, **once)["remaining"] for _ in range(3)] == [1.0, 1.0, 1.0]
        assert [ask("deduplicator", "orders", "Offer", {"id": "1"})["first"] for _ in range(2)] == [True, False]
        assert ask("session_tracker", "ann", "Touch", {})["events"] == 1
        assert ask("counters", "ann", "Increment", {"by": 3}) == 3
        refused = http.post("/counters/ask", json={"key": "ann", "type": "Increment", "message": {"by": -1}})
        assert (refused.status_code, "only grow" in refused.text) == (409, True)
        told = http.post("/counters/tell", json={"key": "bob", "type": "Increment", "message": {"by": 5}})
        assert told.status_code == 200, told.text
        expected = [{"name": "bob", "count": 5}, {"name": "ann", "count": 3}]
        deadline = time.monotonic() + SECONDS
        while ask("counters_boards", "all", "Top", {}) != expected:
            assert time.monotonic() < deadline
            time.sleep(0.05)

"""The OpenAPI document is typed as the code is, and what it says is so: schemathesis tries to show otherwise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.unit.api.support import make_app, served

EXAMPLES = 4
"""For each operation; the slow test tries more."""
TOKEN = "everything-is-allowed"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def town(directory: Path) -> Iterator[str]:
    """The app, served from another thread; gives its URL."""
    told: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def run() -> None:
        async with served(
            directory, make_app(api_tokens=f"{TOKEN} ops state:read:* topic:send:* actor:send:*"), token=TOKEN
        ) as running:
            await running.visited("ann", "bob")
            told.append(running.server.url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(60)
        yield told[0]
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with town(tmp_path_factory.mktemp("town")) as found:
        yield found


def test_the_document_is_typed_as_handlers_and_topics_are(url: str) -> None:
    document = httpx.get(f"{url}/openapi.json", headers=HEADERS).json()
    paths = document["paths"]

    def answer(path: str) -> Any:
        return paths[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]

    profile = answer("/v1/services/greeter/states/profile/keys/{key}")["properties"]["value"]
    assert {"$ref": "#/components/schemas/Profile"} in profile["anyOf"]
    assert document["components"]["schemas"]["Profile"]["properties"]["visits"] == {"type": "integer"}
    assert answer("/v1/services/greeter/states/log/keys/{key}")["properties"]["value"]["items"] == {"type": "string"}
    body = paths["/v1/topics/visits/records"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    value = body["properties"]["records"]["items"]["properties"]["value"]
    assert value == {"$ref": "#/components/schemas/Visit"}
    assert not [path for path in paths if "secret" in path or "states/task" in path or "{service}" in path]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(60, marks=pytest.mark.slow)])
def test_schemathesis_finds_no_violations(url: str, examples: int) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=HEADERS)
    schema.config.max_stream_events = 1  # streams do not end by themselves
    tried = []
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        tried.append(operation.label)
        _try(operation.as_strategy(), url, examples)
    assert len(tried) > 40
    assert sum(label.endswith("/watch") for label in tried) > 8


def _has_whole_float(value: Any) -> bool:
    """JSON schema takes 3.0 for an integer, which msgspec does not."""
    if isinstance(value, dict):
        return any(map(_has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(_has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


def _try(strategy: Any, url: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=strategy)
    def check(case: Any) -> None:
        answer = case.call(base_url=url, headers=HEADERS, timeout=30)
        left_out = []
        if answer.status_code in (502, 504):  # a handler that fails, or takes longer than was allowed: as documented
            left_out.append(not_a_server_error)
        if _has_whole_float(case.body):
            left_out.append(positive_data_acceptance)
        case.validate_response(answer, headers=HEADERS, excluded_checks=left_out)

    check()

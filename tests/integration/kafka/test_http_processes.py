"""Several processes answer at one public address for all keys, whichever process owns a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.integration.kafka.projects import KafkaProject, eventually
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.plugin import SharedKafka

CLIENT = "known-to-the-client"
HEADERS = {"authorization": f"Bearer {CLIENT}"}
NAMES = [f"n/{number}" for number in range(40)]


@pytest.fixture
def project(tmp_path: Path, kafka: SharedKafka) -> Iterator[KafkaProject]:
    made = KafkaProject(tmp_path, kafka.url)
    yield made
    made.close()


def _all_keys_can_be_watched(client: httpx.Client, topic: str, records: list[dict[str, dict[str, str]]]) -> None:
    told = set()
    with client.stream("GET", "/v1/services/greeter/states/seen/watch") as answer:
        for line in answer.iter_lines():
            if line == "event: ready":
                assert client.post(topic, json={"records": records}).status_code == 200
            elif line.startswith("data: ") and (changed := json.loads(line.removeprefix("data: "))):
                told.add((changed["key"], changed["value"]))
                if len(told) == len(NAMES):
                    break
    assert told == {(name, 2) for name in NAMES}


@pytest.mark.timeout(400)
def test_one_port_answers_for_all_keys_of_all_processes(project: KafkaProject) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    worker = project.start(
        "worker", "hello.py", "--processes", "2", "--api", url.removeprefix("http://"),
        TIDEGATE_API_TOKENS=f"{CLIENT} ops state:read:* topic:send:*", TIDEGATE_API_PEER_TOKEN="known-among-workers",
    )  # fmt: skip
    for number in range(2):
        worker.wait_for(f"[{number}] recovered", seconds=200)
    assert f"dashboard and API at {url}" in worker.output
    assert httpx.get(f"{url}/v1/workers", trust_env=False).status_code == 401
    with httpx.Client(base_url=url, headers=HEADERS, timeout=60, trust_env=False) as client:

        def shared() -> bool:
            found = client.get("/v1/workers").json()["workers"]
            return len(found) == 2 and all(one["ready"] and one["tasks"] for one in found)

        eventually(shared, seconds=200)
        records = [{"value": {"name": name}} for name in NAMES]
        topic = project.topic("greetings")
        sent = client.post(f"/v1/topics/{topic}/records", json={"records": records}).json()
        keys = "/v1/services/greeter/states/seen/keys"
        page = client.get(keys, params={"min_position": sent["position"], "limit": 30}).json()
        assert [item["key"] for item in page["items"]] == sorted(NAMES)[:30]
        rest = client.get(keys, params={"cursor": page["cursor"]}).json()
        assert [item["key"] for item in rest["items"]] == sorted(NAMES)[30:]
        for name in NAMES:  # each over a connection of its own: any process may get it
            answer = httpx.get(f"{url}{keys}/{quote(name, safe='')}", headers=HEADERS, timeout=60, trust_env=False)
            assert answer.json() == {"key": name, "value": 1}
        batch = client.post("/v1/services/greeter/states/seen/batch", json={"keys": NAMES})
        assert [one["value"] for one in batch.json()["values"]] == [1] * len(NAMES)
        _all_keys_can_be_watched(client, f"/v1/topics/{topic}/records", records)
    assert worker.stop() == 0

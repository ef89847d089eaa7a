"""Actors as they were at a savepoint, asked of a worker process, also one that was killed and started again."""

from __future__ import annotations

from typing import Any

import httpx

from tests.integration.commands import Project, Running
from tidegate_app.kafka.configuration import free_port

ACTOR = "/v1/services/greeter/actors/ann"


def start(project: Project, url: str) -> Running:
    running = project.start(
        "worker", "hello.py", "--api", url.removeprefix("http://"), TIDEGATE_API_TIMEOUT="60"
    )  # fmt: skip
    running.wait_for("recovered")
    return running


def test_an_actors_state_at_a_checkpoint_is_shown_despite_later_changes(project: Project) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    worker = start(project, url)
    with httpx.Client(base_url=url, timeout=90, trust_env=False) as client:

        def greet() -> None:
            sent = client.post("/v1/topics/greetings/records", json={"records": [{"value": {"name": "ann"}}]}).json()
            assert actor(min_position=sent["position"])["key"] == "ann"

        def actor(**params: str) -> Any:
            answer = client.get(ACTOR, params=params)
            assert answer.status_code == 200, answer.text
            return answer.json()

        greet()
        before = actor()
        assert before["states"] == {"seen": 1}
        assert [timer["name"] for timer in before["timers"]] == ["later"]
        assert client.post("/v1/savepoints", json={"name": "before"}).json()["complete"]
        greet()
        assert actor(as_of="before") == before
        assert actor()["states"] == {"seen": 2}

        left = list(project.data.rglob("as-of/*"))
        assert len(left) == 1  # what was fetched for it
        worker.kill()
        (left[0].parent / "rubbish").mkdir()
        worker = start(project, url)
        assert actor(as_of="before") == before
        assert actor()["states"] == {"seen": 2}
        assert not (left[0].parent / "rubbish").exists()
    assert worker.stop() == 0
    assert not list(project.data.rglob("as-of/*"))

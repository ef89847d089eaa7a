"""Actors over HTTP: typed tells and asks, handled once per idempotency key."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.api.support import SECONDS, Served, eventually, served
from tidegate.checkpoints.storage.manifest import TaskSnapshot
from tidegate.checkpoints.storage.reader import CheckpointReader
from tidegate.state.base import Store


async def post(town: Served, verb: str, body: Any, key: str = "") -> httpx.Response:
    headers = {"idempotency-key": key} if key else {}
    return await town.client.post(f"/v1/services/greeter/{verb}", json=body, headers=headers)


async def test_an_ask_is_answered_with_committed_state(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        await town.visited("ann")
        praise = {"key": "ann", "type": "Praise", "message": {"times": 2}}
        assert (await post(town, "ask", praise)).json() == {"reply": 3}
        assert (await town.get("/v1/services/greeter/states/seen/keys/ann")).json()["value"] == 3
        answers = await asyncio.gather(*(post(town, "ask", praise, "once") for _ in range(5)))
        assert [answer.json() for answer in answers] == [{"reply": 5}] * 5
        other = await post(town, "ask", {**praise, "message": {"times": 3}}, "once")
        assert other.status_code == 409
        assert (await post(town, "ask", {"key": "ann", "type": "HowOften", "message": {}})).json() == {"reply": 5}
        actor = (await town.get("/v1/services/greeter/actors/ann")).json()
        assert all(not name.startswith("_") for name in actor["states"])


async def test_a_client_can_wait_for_a_tell(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        told = await post(town, "tell", {"key": "bob", "type": "Praise", "message": {"times": 4}})
        assert told.status_code == 200, told.text
        params = {"min_position": told.json()["position"]}
        assert (await town.get("/v1/services/greeter/states/seen/keys/bob", params=params)).json()["value"] == 4


async def test_refusals_say_whose_they_are(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        good = {"key": "ann", "type": "Praise", "message": {"times": 1}}
        for verb, body, status in (
            ("ask", {**good, "message": {"times": 11}}, 409),
            ("ask", {**good, "message": {"times": -1}}, 502),
            ("ask", {**good, "message": {"times": "many"}}, 422),
            ("ask", {**good, "type": "Blame"}, 422),
            ("ask", {"key": "ann", "message": {}}, 422),
            ("ask", {**good, "key": 5}, 422),
            ("tell", {**good, "colour": "red"}, 422),
        ):
            answer = await post(town, verb, body)
            assert answer.status_code == status, (body, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
        silent = await town.client.post("/v1/services/sums/ask", json=good)
        assert silent.status_code == 422


async def test_state_can_be_read_as_it_was_at_a_savepoint(tmp_path: Path) -> None:
    async with served(tmp_path, store="rocksdb", api_timeout=60) as town:
        await town.visited("ann", "bob")
        taken = await town.client.post("/v1/savepoints", json={"name": "before"})
        assert (taken.status_code, taken.json()["complete"]) == (200, True), taken.text
        await town.visited("ann", "cid")
        path, past = "/v1/services/greeter/states/seen/keys", {"as_of": "before"}
        assert (await town.get(f"{path}/ann")).json()["value"] == 2
        then = await town.get(f"{path}/ann", params=past)
        assert then.json()["value"] == 1
        assert then.headers["tidegate-checkpoint"] == str(taken.json()["epoch"])
        assert (await town.get(f"{path}/cid", params=past)).status_code == 404
        page = (await town.get(path, params=past)).json()
        assert page["items"] == [{"key": "ann", "value": 1}, {"key": "bob", "value": 1}]
        assert (await town.get(f"{path}/ann", params={"as_of": "never"})).status_code == 404
        for wrong in ("../before", "9" * 5000, "", "a b"):
            assert (await town.get(f"{path}/ann", params={"as_of": wrong})).status_code == 422
        again = await town.client.post("/v1/checkpoints")
        number = again.json()["epoch"]
        assert (await town.get(f"{path}/ann", params={"as_of": str(number)})).json()["value"] == 2
        (savepoint,) = (await town.get("/v1/savepoints")).json()["checkpoints"]
        assert savepoint["id"] == "before"

        async def listed() -> bool:
            found = (await town.get("/v1/checkpoints")).json()
            return number in [one["epoch"] for one in found["checkpoints"]] and found["progress"]["healthy"]

        await eventually(listed)
        assert (await town.client.post("/v1/savepoints", json={"name": "../x"})).status_code == 422


async def test_an_actor_can_be_seen_as_it_was_at_a_savepoint_or_checkpoint(tmp_path: Path) -> None:
    async with served(tmp_path, store="rocksdb", api_timeout=60) as town:
        await town.visited("a/nn", "bob")
        path = "/v1/services/greeter/actors"
        before = (await town.get(f"{path}/a%2Fnn")).json()
        taken = await town.client.post("/v1/savepoints", json={"name": "before"})
        assert taken.json()["complete"], taken.text
        await town.visited("a/nn", "cid", place="sea")
        now = (await town.get(f"{path}/a%2Fnn")).json()
        then = await town.get(f"{path}/a%2Fnn", params={"as_of": "before"})
        assert then.status_code == 200, then.text
        assert then.json() == before
        assert then.json()["states"]["log"] == ["home"] != now["states"]["log"]
        assert then.json()["timers"][0]["at"] < now["timers"][0]["at"]
        assert then.headers["tidegate-checkpoint"] == str(taken.json()["epoch"])
        assert "secret" not in then.json()["states"]
        nobody = (await town.get(f"{path}/cid", params={"as_of": "before"})).json()
        assert nobody == {"key": "cid", "states": {}, "timers": []}
        number = (await town.client.post("/v1/checkpoints")).json()["epoch"]
        assert (await town.get(f"{path}/a%2Fnn", params={"as_of": str(number)})).json() == now
        for params, status in (
            ({"as_of": "never"}, 404),
            ({"as_of": "../before"}, 422),
            ({"as_of": "before", "min_position": "x"}, 409),
        ):
            assert (await town.get(f"{path}/a%2Fnn", params=params)).status_code == status


async def test_files_of_a_checkpoint_are_fetched_once_even_without_waiting_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, store="rocksdb", api_timeout=0.5) as town:
        await town.visited("ann", "bob")
        await town.client.post("/v1/savepoints", json={"name": "before"})
        path, past = "/v1/services/greeter/actors/ann", {"as_of": "before"}

        async def taken() -> bool:
            return bool((await town.get("/v1/savepoints")).json()["checkpoints"])

        await eventually(taken)
        fetched: list[str] = []
        release = threading.Event()
        open_store = CheckpointReader.open_store

        def slowly(reader: CheckpointReader, task: TaskSnapshot, directory: Path) -> Store:
            fetched.append(task.task)
            assert release.wait(SECONDS)
            return open_store(reader, task, directory)

        monkeypatch.setattr(CheckpointReader, "open_store", slowly)
        answers = await asyncio.gather(*(town.get(path, params=past) for _ in range(3)))
        assert [answer.status_code for answer in answers] == [503] * 3
        assert all("being fetched" in answer.json()["detail"] for answer in answers)
        assert "retry-after" in answers[0].headers
        release.set()

        async def there() -> bool:
            return (await town.get(path, params=past)).status_code == 200

        await eventually(there)
        assert len(fetched) == 1


async def test_unused_stores_of_checkpoints_are_released(tmp_path: Path) -> None:
    async with served(tmp_path, store="rocksdb", api_timeout=60) as town:
        history = town.server._serving.history
        for number in range(6):
            await town.visited("ann")
            await town.client.post("/v1/savepoints", json={"name": f"s{number}"})
        keys = "/v1/services/greeter/states/seen/keys"
        for _ in range(2):  # 6 x 4 stores, and 16 of them are kept
            pages = await asyncio.gather(*(town.get(keys, params={"as_of": f"s{number}"}) for number in range(6)))
            assert [page.json()["items"][0]["value"] for page in pages] == [1, 2, 3, 4, 5, 6]
        assert len(history._open) == 16
        assert len(list(history._directory.iterdir())) == 16

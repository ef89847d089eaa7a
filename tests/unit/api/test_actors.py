"""Actors over HTTP: told and asked, by their types, once for each idempotency key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from tests.unit.api.support import Served, eventually, served


async def post(town: Served, verb: str, body: Any, key: str = "") -> httpx.Response:
    headers = {"idempotency-key": key} if key else {}
    return await town.client.post(f"/v1/services/greeter/{verb}", json=body, headers=headers)


async def test_an_ask_is_answered_with_what_is_committed(tmp_path: Path) -> None:
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


async def test_what_was_told_can_be_waited_for(tmp_path: Path) -> None:
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

"""Records from outside: checked, all or none, and once for each idempotency key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.unit.api.support import make_app, served

RECORDS = "/v1/topics/visits/records"


async def test_records_are_checked_before_any_is_written(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        good = {"value": {"name": "ann"}}
        wrong: tuple[Any, ...] = (
            {"records": [good, {"value": {"place": "home"}}]},
            {"records": [good, {"value": {"name": 5}}]},
            {"records": [good, {"value": {"name": "bob"}, "timestamp": "now"}]},
            {"records": [good, {"value": {"name": "bob"}, "colour": "red"}]},
            {"records": [good, {"value": {"name": "bob"}, "headers": {"x": 5}}]},
            {"records": [good] * 1001},
            {"records": []},
            {"records": "all"},
            {},
            [],
        )
        for bad in wrong:
            answer = await town.client.post(RECORDS, json=bad)
            assert answer.status_code == 422, (bad, answer.text)
        answer = await town.client.post(RECORDS, content=b"\xff{", headers={"content-type": "application/json"})
        assert answer.status_code == 422
        form = await town.client.post(RECORDS, content=b"{}", headers={"content-type": "text/plain"})
        assert form.status_code == 415
        assert (await town.client.post("/v1/topics/nothing/records", json={"records": [good]})).status_code == 404
        assert (await town.client.post("/v1/topics/town.control/records", json={"records": [good]})).status_code == 404
        topics = (await town.get("/v1/topics")).json()["topics"]
        assert next(topic for topic in topics if topic["name"] == "visits")["records"] == 0


async def test_the_same_idempotency_key_is_carried_out_once_by_whoever_asks_and_after_a_restart(
    tmp_path: Path,
) -> None:
    body = {"records": [{"value": {"name": "ann"}}, {"value": {"name": "bob"}}]}
    headers = {"idempotency-key": "order-1"}
    async with served(tmp_path) as town:
        answers = await asyncio.gather(*(town.client.post(RECORDS, json=body, headers=headers) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert sorted(answer.json()["again"] for answer in answers) == [False] + [True] * 19
        (token,) = {answer.json()["position"] for answer in answers}
        other = await town.client.post(RECORDS, json={"records": body["records"][:1]}, headers=headers)
        assert (other.status_code, other.json()["type"]) == (409, "urn:tidegate:problem:idempotency-key-reused")
        await asyncio.gather(
            *(town.client.post(RECORDS, json=body, headers={"idempotency-key": f"o{n}"}) for n in range(9))
        )
    async with served(tmp_path, make_app()) as town:
        again = await town.client.post(RECORDS, json=body, headers=headers)
        assert again.json() == {"records": 2, "position": token, "again": True}
        seen = await town.get("/v1/services/greeter/states/seen/keys/ann", params={"min_position": token})
        for _ in range(100):
            if seen.json()["value"] == 10:
                break
            await asyncio.sleep(0.05)
            seen = await town.get("/v1/services/greeter/states/seen/keys/ann")
        assert seen.json()["value"] == 10

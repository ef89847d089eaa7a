"""Records from outside: checked, all or none, and once for each idempotency key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tests.unit.api.support import make_app, served
from tidegate import App, Context, ValueState

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


async def test_a_repeated_idempotency_key_is_executed_once_across_clients_and_restarts(
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


class Guest(msgspec.Struct, frozen=True):
    name: str


async def test_null_is_a_tombstone_for_its_key_where_the_topic_takes_them(tmp_path: Path) -> None:
    app = App("hotel", partitions=2)
    guests = app.topic("guests", value_type=Guest, key="name", compact=True)
    app.topic("visits", value_type=Guest, key="name")

    @app.process(guests)
    def stay(ctx: Context, guest: Guest | None, stays: ValueState[bool | None]) -> None:
        stays.value = guest is not None

    async with served(tmp_path, app) as hotel:
        for value, stays in (({"name": "ann"}, True), (None, False)):
            body = {"records": [{"key": "ann", "value": value}]}
            token = (await hotel.client.post("/v1/topics/guests/records", json=body)).json()["position"]
            seen = await hotel.get("/v1/services/stay/states/stays/keys/ann", params={"min_position": token})
            assert seen.json()["value"] is stays
        refused = await hotel.client.post(RECORDS, json={"records": [{"key": "ann", "value": None}]})
        assert refused.status_code == 422
        assert "compact=True or value_type=X | None" in refused.text
        document = (await hotel.get("/openapi.json")).json()
        records = document["paths"]["/v1/topics/guests/records"]["post"]["requestBody"]["content"]["application/json"]
        value = records["schema"]["properties"]["records"]["items"]["properties"]["value"]
        assert [kind.get("type") for kind in value["anyOf"]][-1] == "null"

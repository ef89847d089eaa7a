"""Committed state over HTTP: points, batches, pages and actors, with what they are of."""

from __future__ import annotations

import string
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.unit.api.support import Served, eventually, served
from tidegate.serving import parse_position

STRANGE = [
    "a/b", "../etc/passwd", "%2e%2e", "with space", "ünïcødé ☃", "?at=1", "#", "keys/", "//", "\x00nul\x00", ".",
    "..", "+", "a\nb", '"quoted"', "\\", "",
]  # fmt: skip


def point(state: str, key: str, service: str = "greeter") -> str:
    return f"/v1/services/{service}/states/{state}/keys/{quote(key, safe='')}"


async def test_every_kind_of_state_is_read_by_its_type(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        await town.visited("ann", place="home")
        await town.visited("ann", place="sea")
        expected = {
            "seen": 2,
            "profile": {"visits": 2, "last": "sea"},
            "places": {"home": 1, "sea": 1},
            "log": ["home", "sea"],
            "brief": "sea",
            "mean": 3.5,
        }
        for state, value in expected.items():
            answer = await town.get(point(state, "ann"))
            assert answer.status_code == 200, answer.text
            assert answer.json() == {"key": "ann", "value": value}
        assert (await town.get(point("places", "ann"), params={"at": "sea"})).json() == {"key": "ann", "value": 1}
        actor = (await town.get("/v1/services/greeter/actors/ann")).json()
        assert actor["states"] == expected  # and not what is not for others
        assert [timer["name"] for timer in actor["timers"]] == ["bye"]


async def test_keys_may_hold_any_character(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        await town.visited(*STRANGE)
        batch = await town.client.post("/v1/services/greeter/states/seen/batch", json={"keys": STRANGE})
        assert [one["value"] for one in batch.json()["values"]] == [1] * len(STRANGE)
        for key in set(STRANGE) - {".", ".."}:  # which clients take out of a path, however they are written
            answer = await town.get(point("seen", key))
            assert (answer.status_code, answer.json()) == (200, {"key": key, "value": 1})
            actor = await town.get(f"/v1/services/greeter/actors/{quote(key, safe='')}")
            assert (actor.status_code, actor.json()["key"]) == (200, key)


async def test_an_unknown_name_is_reported_as_not_found(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        await town.visited("ann")
        for path, status in {
            point("seen", "bob"): 404,
            point("places", "ann") + "?at=moon": 404,
            point("seen", "ann") + "?at=moon": 422,
            point("seen", "ann") + "?what=moon": 422,
            point("nothing", "ann"): 404,
            point("seen", "ann", "nobody"): 404,
            point("visitors", "home", "by_place.visits.by-key"): 404,
            point("secret", "ann"): 403,
            point("task", "ann"): 422,
            point("total", "x", "sums"): 422,
            "/v1/nothing": 404,
        }.items():
            answer = await town.get(path)
            assert answer.status_code == status, (path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status
            assert answer.json()["detail"]


async def test_a_response_names_its_commit(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        await town.visited("ann")
        first = await town.get(point("seen", "ann"))
        await town.visited("ann")
        second = await town.get(point("seen", "ann"))
        before, after = (parse_position(answer.headers["tidegate-position"]) for answer in (first, second))
        (task,) = before.tasks
        assert before.tasks[task][1] < after.tasks[task][1]
        assert int(second.headers["tidegate-watermark"]) >= int(first.headers["tidegate-watermark"])
        again = await town.get(point("seen", "ann"), params={"min_position": first.headers["tidegate-position"]})
        assert again.json()["value"] == 2


async def test_a_client_that_waits_for_its_write_reads_it(tmp_path: Path) -> None:
    async with served(tmp_path, commit_interval=0.3) as town:
        for count in range(1, 6):
            token = await town.visit("ann")
            answer = await town.get(point("seen", "ann"), params={"min_position": token})
            assert answer.json()["value"] == count
            body = {"keys": ["ann", "bob"]}
            batch = await town.client.post(
                "/v1/services/greeter/states/seen/batch", json=body, params={"min_position": token}
            )
            assert batch.json()["values"][0]["value"] == count


async def test_a_foreign_position_is_refused_and_a_future_position_times_out(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, api_timeout=0.2) as town:
        token = await town.visit("ann")
        for service, state, wanted in (
            ("sums", "total", token),  # it does not read that topic
            ("by_place", "visitors", token),  # nor does this one: its input is re-keyed
            ("greeter", "seen", "nonsense"),
            ("greeter", "seen", "k6ExgYA"),
        ):
            key = "1" if service == "sums" else "ann"
            answer = await town.get(point(state, key, service), params={"min_position": wanted})
            assert answer.status_code == 409, answer.text
        far = parse_position(token)
        far.topics["visits"][next(iter(far.topics["visits"]))] += 1000
        answer = await town.get(point("seen", "ann"), params={"min_position": str(far)})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


async def test_a_batch_answers_in_the_order_of_its_keys(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        await town.visited(*string.ascii_lowercase)
        keys = ["z", "nobody", "a", "m", "a"]
        answer = await town.client.post("/v1/services/greeter/states/seen/batch", json={"keys": keys})
        assert [one["key"] for one in answer.json()["values"]] == keys
        assert [one["found"] for one in answer.json()["values"]] == [True, False, True, True, True]
        sums = await town.client.post("/v1/topics/numbers/records", json={"records": [{"value": 13}, {"value": 23}]})
        by_number = await town.client.post(
            "/v1/services/sums/states/total/batch",
            json={"keys": [3, 4]},
            params={"min_position": sums.json()["position"]},
        )
        assert by_number.json()["values"] == [
            {"key": 3, "found": True, "value": 36},
            {"key": 4, "found": False, "value": None},
        ]


@pytest.mark.parametrize("state", ["seen", "places", "log"])
async def test_pages_of_keys_are_whole_ordered_and_complete(tmp_path: Path, state: str) -> None:
    names = [f"{first}{second}" for first in "abc" for second in string.ascii_lowercase] + STRANGE
    async with served(tmp_path, store="rocksdb") as town:
        await town.visited(*names)
        await town.visited(*names, place="sea")
        ordered = sorted(names, key=str.encode)
        assert await _all(town, state, {"limit": 7}) == ordered
        assert await _all(town, state, {"prefix": "b", "limit": 5}) == [n for n in ordered if n.startswith("b")]
        assert await _all(town, state, {"start": "ab", "end": "bc"}) == [n for n in ordered if "ab" <= n < "bc"]
        assert await _all(town, state, {"start": "zz"}) == [n for n in ordered if n.encode() >= b"zz"]


async def _all(town: Served, state: str, params: dict[str, str | int]) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        given = params if cursor is None else {**params, "cursor": cursor}
        page = (await town.get(f"/v1/services/greeter/states/{state}/keys", params=given)).json()
        for item in page["items"]:
            assert item["value"] in (2, {"home": 1, "sea": 1}, ["home", "sea"])
            found.append(item["key"])
        cursor = page["cursor"]
        if cursor is None:
            return found


async def test_until_the_worker_is_ready_clients_get_503_with_retry_after(tmp_path: Path) -> None:
    async with served(tmp_path, start=False) as town:
        assert (await town.get("/livez")).status_code == 200
        for path in ("/readyz", point("seen", "ann"), "/v1/services/greeter/states/seen/keys", "/v1/services"):
            answer = await town.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        await town.app.host.start()
        assert (await town.get("/readyz")).status_code == 200


async def test_a_worker_without_an_assignment_answers_no_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path) as town:
        await town.visited("ann")
        monkeypatch.setattr(town.app.host.engine.membership, "session_valid", False, raising=False)
        for path in (point("seen", "ann"), "/v1/services/greeter/states/seen/keys", "/v1/services/greeter/actors/ann"):
            answer = await town.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (await town.get("/readyz")).status_code == 503


async def test_the_worker_reports_the_state_of_its_tasks(tmp_path: Path) -> None:
    async with served(tmp_path) as town:
        await town.visited("ann", "bob")
        await town.visited("ann", place="nowhere")

        async def counted() -> bool:
            (worker,) = (await town.get("/v1/workers")).json()["workers"]
            tasks = [task for task in worker["tasks"] if task["service"] == "greeter"]
            assert {task["state"] for task in worker["tasks"]} == {"running"}
            counts = [sum(task[name] for task in tasks) for name in ("handled", "dead_letters")]
            return counts == [3, 1]

        await eventually(counted)
        topics = {topic["name"]: topic for topic in (await town.get("/v1/topics")).json()["topics"]}
        assert topics["town.greeter.dead-letters"]["records"] >= 1
        assert topics["visits"]["type"] == "Visit"
        services = {found["name"]: found for found in (await town.get("/v1/services")).json()["services"]}
        assert services["greeter"]["description"] == "Greets visitors."
        assert services["by_place"]["inputs"] == ["visits"]
        assert (await town.get("/v1/services/greeter")).json() == services["greeter"]
        assert "tidegate_handled_total" in (await town.get("/metrics")).text

"""tidegate savepoint and tidegate checkpoint, as processes, on the embedded log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.integration.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


def test_an_app_stops_with_a_savepoint_and_restarts_with_another_parallelism(shop: Shop) -> None:
    with shop.worker("shop.py") as worker:
        shop.order(200)
        refused = shop.run("savepoint", "restore", "shop.py", "final", code=1)
        assert "no checkpoint or savepoint at" in refused.stderr
        created = shop.run("savepoint", "create", "shop.py", "final", "--stop")
        assert "savepoint final is complete" in created.stderr
        assert worker.wait() == 0
    shop.order(100)

    restored = shop.run("savepoint", "restore", "shop.py", "final", "--partitions", "5")
    assert "Run 2 of shop starts from final, and replaces run 1." in restored.stderr
    assert "customers: 3 tasks before, 5 now" in restored.stderr
    assert "of it into different tasks" in restored.stderr
    assert "customers × 5" in shop.finish()
    shop.check()
    assert shop.billed() == list(range(300))  # nothing was handled after the savepoint that the new run sends again

    shop.order(50)
    shop.finish()  # what was chosen stays
    assert "customers × 5" in shop.finish()
    shop.check()


def test_a_restore_is_refused_while_a_worker_runs(shop: Shop) -> None:
    with shop.worker("shop.py"):
        shop.order(20)
        shop.run("savepoint", "create", "shop.py", "one")
        refused = shop.run("savepoint", "restore", "shop.py", "one", code=1)
        assert "runs shop, and the state of a running worker cannot be replaced" in refused.stderr
    shop.check()


def test_without_a_worker_a_savepoint_is_refused(shop: Shop) -> None:
    shop.order(3)
    assert "Start one with 'tidegate worker'" in shop.run("savepoint", "create", "shop.py", "one", code=1).stderr
    assert "There are no savepoints in" in shop.run("savepoint", "list", "shop.py").stderr


def test_savepoints_are_listed_shown_compared_exported_and_deleted(shop: Shop, tmp_path: Path) -> None:
    with shop.worker("shop.py"):
        shop.order(34)
        shop.json("tail", "shop.py", "shop-sold", "--from-beginning", "--count", "34")
        shop.run("savepoint", "create", "shop.py", "one")
        shop.order(17)
        shop.json("tail", "shop.py", "shop-sold", "--from-beginning", "--count", "51")
        shop.run("savepoint", "create", "shop.py", "two")
        assert "Checkpoint 3" in shop.run("checkpoint", "trigger", "shop.py").stderr
        again = shop.run("savepoint", "create", "shop.py", "two", code=1)
        assert "there is a savepoint 'two' already" in again.stderr

    assert {row["name"] for row in json.loads(shop.run("savepoint", "list", "shop.py", "--json").stdout)} == {
        "one",
        "two",
    }
    assert [row["epoch"] for row in json.loads(shop.run("checkpoint", "list", "shop.py", "--json").stdout)] == [3]

    shown = json.loads(shop.run("savepoint", "show", "shop.py", "one", "--json").stdout)
    assert {(state["service"], state["state"], state["keys"]) for state in shown["states"]} >= {
        ("customers", "count", 17)
    }
    assert shown["parallelism"] == {"customers": 3, "items": 3}

    compared = json.loads(shop.run("savepoint", "diff", "shop.py", "one", "two", "--json").stdout)
    assert compared[0] == {
        "service": "customers", "state": "count", "added": 0, "removed": 0, "changed": 17, "same": 0,
    }  # fmt: skip
    differing = shop.json("savepoint", "diff", "shop.py", "one", "two", "--keys")
    assert {"key": "c3", "before": 2, "after": 3}.items() <= next(d for d in differing if d["key"] == "c3").items()

    shop.run("savepoint", "export", "shop.py", "two", "--to", "out")
    table = pyarrow.parquet.read_table(tmp_path / "out" / "customers.count.parquet").to_pylist()
    assert {row["key"]: row["value"] for row in table} == {f"c{n}": 3 for n in range(17)}
    shop.run("savepoint", "export", "shop.py", "two", "--to", "out", "--format", "jsonl", "--service", "items")
    rows = [json.loads(line) for line in (tmp_path / "out" / "items.seen.jsonl").read_text().splitlines()]
    assert {row["subkey"] for row in rows} == {str(number) for number in range(51)}

    shop.run("savepoint", "delete", "shop.py", "one")
    assert "no checkpoint or savepoint at" in shop.run("savepoint", "show", "shop.py", "one", code=1).stderr


@pytest.mark.slow
def test_a_copied_savepoint_restores_under_another_name(shop: Shop, tmp_path: Path) -> None:
    with shop.worker("shop.py"):
        shop.order(60)
        shop.run("savepoint", "create", "shop.py", "one", "--stop")
    (tmp_path / ".tidegate" / "shop" / "savepoints" / "one").rename(tmp_path / "moved")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Shop(elsewhere)
    try:
        other.sent = 60
        refused = other.run("savepoint", "restore", "shop.py", "../moved", code=1)
        assert "--start shop-orders=earliest" in refused.stderr
        other.run("savepoint", "restore", "shop.py", "../moved", "--start", "shop-orders=earliest", "--partitions", "2")
        other.order(40)
        other.finish()
        with other.worker("shop.py"):
            pass
        counted = other.state("items", "seen")
        assert {number for seen in counted.values() for number in seen} >= {str(n) for n in range(60, 100)}
        assert all(times == 1 for seen in counted.values() for times in seen.values())
    finally:
        other.close()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("restore.loading", marks=pytest.mark.slow),
        pytest.param("restore.loaded", marks=pytest.mark.slow),
        "restore.begun",
        pytest.param("restore.fenced", marks=pytest.mark.slow),
    ],
)
def test_a_killed_restore_leaves_a_consistent_run_and_can_be_repeated(shop: Shop, point: str) -> None:
    with shop.worker("shop.py"):
        shop.order(80)
        shop.run("savepoint", "create", "shop.py", "one")
        shop.order(40)
    struck = shop.directory / "struck"
    shop.run(
        "savepoint", "restore", "shop.py", "one", "--partitions", "4",
        code=-9, TIDEGATE_FAULTS=f"{point}:kill@1", TIDEGATE_FAULTS_LOG=str(struck),
    )  # fmt: skip
    assert struck.read_text() == f"{point}:kill@1\n"
    begun = point in ("restore.begun", "restore.fenced")
    assert ("customers × 4" if begun else "customers × 3") in shop.finish()
    shop.check()
    shop.run("savepoint", "restore", "shop.py", "one", "--partitions", "2")
    shop.order(10)
    assert "customers × 2" in shop.finish()
    shop.check()


def test_a_repeatedly_killed_migration_migrates_each_value_once(shop: Shop) -> None:
    shop.order(120)
    shop.finish()
    code = (shop.directory / "shop.py").read_text()
    newer = code.replace("ValueState[int], Default(0)]", "ValueState[list[int]], Default(factory=list), Version(2)]")
    newer = newer.replace("count.value += 1", "count.value.append(order.id)").replace(
        "ValueState\n", "ValueState, Version\n"
    )
    (shop.directory / "shop.py").write_text(newer)
    refused = shop.run("worker", "shop.py", "--until-end", code=1)
    assert "state 'count'" in refused.stderr
    assert "@customers.migrate('count', from_version=1)" in refused.stderr
    migration = "@customers.migrate('count', from_version=1)\ndef as_list(old: int) -> list[int]:\n    return [-old]\n"
    (shop.directory / "shop.py").write_text(f"{newer}\n{migration}")
    for attempt in (1, 2):
        shop.run("worker", "shop.py", "--until-end", code=-9, TIDEGATE_FAULTS=f"state.migrating:kill@{attempt}")
    shop.finish()
    counts = shop.state("customers", "count")
    assert counts == {f"c{n}": [-len(range(n, 120, 17))] for n in range(17)}


def test_a_replay_of_one_key_writes_nothing(shop: Shop) -> None:
    with shop.worker("shop.py"):
        shop.order(34)
        shop.json("tail", "shop.py", "shop-sold", "--from-beginning", "--count", "34")
        shop.run("savepoint", "create", "shop.py", "one")
        shop.order(34)
        shop.json("tail", "shop.py", "shop-sold", "--from-beginning", "--count", "68")
        replayed = shop.run("replay", "shop.py", "customers", "c3", "--from", "one").stdout
        assert replayed.splitlines()[1:5] == [
            "  before  count=2",
            '   emits  shop-sold "i4": {"id":37,"customer":"c3","item":"i4"}',
            '   emits  shop-bills "c3": 37',
            "   after  count=3",
        ]
        assert replayed.splitlines()[-1] == "     end  count=4"
        assert "items" in shop.run("replay", "shop.py", "nobody", "x", "--from", "one", code=1).stderr
        stepped = shop.run("replay", "shop.py", "items", "i4", "--from", "one", "--pdb", stdin="p order.id\nc\nq\n")
        assert stepped.stdout.split("(Pdb)")[1].split()[0] in (
            "37",
            "48",
            "59",
        )  # tasks have sent them as they came to it
        assert "async def items" not in stepped.stdout  # it has stopped in the body
    # A running worker writes by itself, too.
    before = shop.run("topics", "shop.py", "--all", "--json").stdout
    assert shop.run("replay", "shop.py", "customers", "c3", "--from", "one").stdout == replayed
    assert shop.run("topics", "shop.py", "--all", "--json").stdout == before
    shop.check()

"""tidegate savepoint restore --start and --as, as processes: on the embedded log, on a broker, and between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.shop import KafkaShop, Shop

EMBEDDED: dict[str, Any] = {"TIDEGATE_BROKER": "embedded://"}


@pytest.fixture(params=["embedded", "kafka"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    on_kafka = request.param == "kafka"
    made = KafkaShop(tmp_path, request.getfixturevalue("kafka").url) if on_kafka else Shop(tmp_path)
    yield made
    made.close()


def stop_with(shop: Shop, name: str, count: int, **options: Any) -> None:
    """Have some orders handled by both services, and stop with a savepoint."""
    with shop.worker("shop.py", **options) as worker:
        shop.order(count, **options)
        shop.sold(count, **options)
        shop.run("savepoint", "create", "shop.py", name, "--stop", **options)
        assert worker.wait() == 0


def counted(shop: Shop, **options: Any) -> Counter[int]:
    """How often each order was counted by the second service."""
    seen = shop.state("items", "seen", **options)
    return Counter({int(number): times for item in seen.values() for number, times in item.items()})


def moment() -> str:
    """A time that is later than all that was sent so far, and earlier than all that comes."""
    time.sleep(0.02)
    now = datetime.now(UTC).isoformat()
    time.sleep(0.02)
    return now


@pytest.mark.timeout(240)
def test_start_offsets_override_those_of_the_savepoint(shop: Shop) -> None:
    stop_with(shop, "one", 30)
    shop.order(20)
    later = moment()
    shop.order(20)

    def orders_after(where: str | None) -> Counter[int]:
        start = () if where is None else ("--start", f"{shop.orders}={where}")
        shop.run("savepoint", "restore", "shop.py", "one", *start)
        shop.finish()
        return counted(shop)

    before, between, after = range(30), range(30, 50), range(50, 70)
    assert orders_after(None) == Counter([*before, *between, *after])
    assert orders_after("latest") == Counter(before)
    assert orders_after(later) == Counter([*before, *after])
    seconds = round(datetime.fromisoformat(later).timestamp()) + 3600
    assert orders_after(str(seconds)) == Counter(before), "nothing is of a time to come"
    assert orders_after("earliest") == Counter([*before, *before, *between, *after])


@pytest.mark.parametrize("shop", ["embedded", pytest.param("kafka", marks=pytest.mark.slow)], indirect=True)
def test_an_invalid_restore_is_refused_and_changes_nothing(shop: Shop) -> None:
    stop_with(shop, "one", 10)
    before = shop.run("topics", "shop.py", "--all", "--json").stdout

    def refused(*options: str) -> str:
        return shop.run("savepoint", "restore", "shop.py", "one", *options, code=1).stderr

    assert "there is no topic that a service reads 'order' here; known: " in refused("--start", "order=latest")
    assert shop.orders in refused("--start", "order=latest")
    bills = f"{shop.name}-bills"
    assert f"reads '{bills}'" in refused("--start", f"{bills}=latest"), "the app only writes it"
    for wrong in ("yesterday", "", "2026-13-01", "12:00"):
        told = refused("--start", f"{shop.orders}={wrong}")
        assert f"--start {shop.orders}={wrong}: a start is earliest, latest, a time such as 2026-01-31T12" in told
    for wrong in (shop.orders, "=latest"):
        assert f"--start {wrong}: write --start TOPIC=earliest" in refused("--start", wrong)
    assert "--partitions many: write a number" in refused("--partitions", "many")
    assert "1 to 128 tasks, not 0" in refused("--partitions", "0")
    assert "there is no service 'nobody'" in refused("--partitions", "nobody=2")
    assert "Traceback" not in refused("--start", "order=latest")

    assert shop.run("topics", "shop.py", "--all", "--json").stdout == before
    shop.order(5)
    shop.finish()
    shop.check()


@pytest.mark.timeout(240)
def test_a_savepoint_restores_under_another_app_id(shop: Shop) -> None:
    """On a broker it is the same log, and offsets hold. An embedded log belongs to one id."""
    stop_with(shop, "one", 40)
    shop.order(10)
    branch, start = f"{shop.name}-branch", ("--start", f"{shop.orders}=earliest")
    shared = isinstance(shop, KafkaShop)
    if not shared:
        refused = shop.run("savepoint", "restore", "shop.py", "one", "--as", branch, code=1)
        assert f"--start {shop.orders}=earliest" in refused.stderr
    told = shop.run("savepoint", "restore", "shop.py", "one", "--as", branch, *(() if shared else start)).stderr
    assert f"Run 2 of {branch} starts from one." in told
    assert f"App({branch!r})" in told, "the code must say so, too"
    assert ("The savepoint is from another log" in told) != shared

    shop.call(branch)
    shop.order(20)
    assert "customers × 3" in shop.finish()
    shop.check([*range(40), *range(50 if not shared else 40, 70)])

    if not shared:  # on a broker both would read what each of them sends from service to service
        shop.call(shop.name)
        shop.finish()
        shop.check(range(50))


@pytest.mark.timeout(300)
def test_an_app_moves_to_a_broker_and_back_under_another_id_each_time(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shop = KafkaShop(tmp_path, request.getfixturevalue("kafka").url)
    try:
        _there_and_back(shop)
    finally:
        shop.close()


def _there_and_back(shop: KafkaShop) -> None:
    stop_with(shop, "one", 30, **EMBEDDED)
    shop.order(10)  # on the broker; another worker has handled them
    later = moment()
    shop.order(10)
    there = f"{shop.name}-there"
    missing = shop.run("savepoint", "restore", "shop.py", "one", "--as", there, code=1).stderr
    assert "taken on another log" in missing
    assert f"--start {shop.orders}=earliest" in missing
    shop.run(
        "savepoint",
        "restore",
        "shop.py",
        "one",
        "--as",
        there,
        "--start",
        f"{shop.orders}={later}",
        "--partitions",
        "5",
    )
    shop.call(there)
    assert "customers × 5" in shop.finish()
    assert counted(shop) == once(range(30), range(40, 50))

    with shop.worker("shop.py"):
        shop.run("savepoint", "create", "shop.py", "two", "--stop")
    back = ("savepoint", "restore", "shop.py", "two", "--as", shop.name)
    assert "taken on another log" in shop.run(*back, code=1, **EMBEDDED).stderr
    told = shop.run(*back, "--start", f"{shop.orders}=latest", "--partitions", "2", **EMBEDDED).stderr
    assert f"of {shop.name} starts from two, and replaces run 1." in told
    shop.call(shop.name)
    shop.order(10, **EMBEDDED)
    assert "customers × 2" in shop.finish(**EMBEDDED)
    assert counted(shop, **EMBEDDED) == once(range(30), range(40, 60))


def once(*orders: Iterable[int]) -> Counter[int]:
    return Counter(number for some in orders for number in some)

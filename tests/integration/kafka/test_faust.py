"""Faust's agents and tables beside services, in the same worker, on the same real broker."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

from tests.integration.commands import Project, Running, lines
from tests.integration.kafka.test_log_security import secure  # noqa: F401  a fixture
from tests.secure import PASSWORD, USER, Secure
from tidegate.settings import variable
from tidegate_app.kafka.configuration import free_port
from tidegate_app.kafka.plugin import SharedKafka

pytestmark = pytest.mark.timeout(240)
"""Faust takes several seconds to start, and some of these start it three times."""

HEAD = """
import faust
import msgspec

from tidegate import App, Context, ValueState

NAME = {name!r}
app = App(NAME, {options})
"""

PIPELINE = """
class Like(msgspec.Struct):
    who: str
    id: int


class Alert(msgspec.Struct):
    who: str
    count: int


raw = app.topic(f"{NAME}.raw", value_type=dict, key="who")
likes = app.topic(f"{NAME}.likes", value_type=Like, key="who")
alerts = app.topic(f"{NAME}.alerts", value_type=Alert)
totals = app.topic(f"{NAME}.totals", value_type=dict, key="who")
table = app.faust.Table("totals", default=int)


@app.agent(raw)
async def enrich(stream):
    async for key, value in stream.items():
        assert key == value["who"]
        await likes.send(value=Like(**value))


@app.process(likes, to=alerts)
async def counter(ctx: Context, like: Like, count: ValueState[int | None]) -> None:
    count.value = (count.value or 0) + 1
    ctx.emit(Alert(ctx.key, count.value))


@app.agent(alerts)
async def alarm(stream):
    async for alert in stream:
        assert type(alert) is Alert
        table[alert.who] += 1
        await totals.send(value={"who": alert.who, "count": alert.count, "total": table[alert.who]})
"""

FAST = {"TIDEGATE_KAFKA_SESSION_TIMEOUT": "6", "BROKER_COMMIT_INTERVAL": "0.3"}
"""Faust, too, does without a killed worker after this time, and commits often enough for a test."""


class Shop(Project):
    """An app of its own on the shared broker."""

    def __init__(self, directory: Path, url: str, module: str, options: str = "", **environment: str) -> None:
        self.id = f"shop-{uuid.uuid4().hex[:8]}"
        self.address = url.removeprefix("kafka://")
        self._environment = {"TIDEGATE_BROKER": url, **FAST, **environment}
        super().__init__(directory, shop=HEAD.format(name=self.id, options=options) + module)

    def start(self, *arguments: str, **options: Any) -> Running:
        return super().start(*arguments, **{**self._environment, **options})

    def work(self, program: str = "tidegate", **environment: str) -> Running:
        """A worker whose agents run, too."""
        commands = {"tidegate": ("worker", "shop.py"), "faust": ("-A", "shop", "worker", "-l", "info")}
        return self.start(*commands[program], program=program, **environment)

    def send_to(self, topic: str, *values: Any) -> None:
        self.run("send", "shop.py", f"{self.id}.{topic}", stdin=lines(values))

    def first(self, topic: str, count: int) -> list[Any]:
        """Wait for so many."""
        tail = self.start("tail", "shop.py", f"{self.id}.{topic}", "--from-beginning", "--count", str(count))
        try:
            assert tail.wait() == 0
        except AssertionError as error:
            said = "".join(f"\n--- {running.pid}\n{running.stdout}{running.output}" for running in self._started)
            raise AssertionError(f"{topic} does not get {count} records. All that was said:{said}") from error
        return [json.loads(line)["value"] for line in tail.stdout.splitlines()]

    def all(self, topic: str) -> list[Any]:
        return [line["value"] for line in self.json("tail", "shop.py", f"{self.id}.{topic}", "--until-end")]

    async def topics(self) -> dict[str, int]:
        """Partitions of all topics of the app."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            found = await admin.describe_topics([name for name in await admin.list_topics() if self.id in name])
            return {each["topic"]: len(each["partitions"]) for each in found}
        finally:
            await admin.close()

    async def committed(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        """A group's positions."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.address, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            return {n: await consumer.committed(TopicPartition(topic, n)) for n in range(partitions)}
        finally:
            await consumer.stop()


Make = Callable[..., Shop]


@pytest.fixture
def make(tmp_path: Path, kafka: SharedKafka) -> Iterator[Make]:
    made: list[Shop] = []

    def make_one(module: str, options: str = "") -> Shop:
        made.append(Shop(tmp_path, kafka.url, module, options))
        return made[-1]

    yield make_one
    for shop in made:
        shop.close()


def events(count: int, keys: int = 3, start: int = 0) -> list[dict[str, Any]]:
    return [{"who": f"k{number % keys}", "id": number} for number in range(start, start + count)]


# -- together ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["tidegate", pytest.param("faust", marks=pytest.mark.slow)])
def test_an_agent_sends_to_a_service_which_emits_to_an_agent_with_a_table(make: Make, program: str) -> None:
    shop = make(PIPELINE)
    worker = shop.work(program)
    shop.send_to("raw", *events(9))
    shop.first("totals", 9)
    assert worker.stop(signal.SIGTERM) == 0, worker.output

    worker = shop.work(program)
    shop.send_to("raw", *events(3))
    totals = shop.first("totals", 12)
    assert worker.stop(signal.SIGTERM) == 0, worker.output

    for who in ("k0", "k1", "k2"):
        mine = [(value["count"], value["total"]) for value in totals if value["who"] == who]
        assert mine == [(1, 1), (2, 2), (3, 3), (4, 4)]  # the service's state and Faust's table both went on
    assert "Traceback" not in worker.output


TYPES = """
import dataclasses
import pydantic


class Struct(msgspec.Struct):
    n: int


@dataclasses.dataclass
class Data:
    n: int


class Model(pydantic.BaseModel):
    n: int


class Record(faust.Record):
    n: int


seen = app.topic(f"{NAME}.seen", value_type=dict)


def pass_through(label, kind):
    there = app.topic(f"{NAME}.{label}", value_type=kind, key=lambda value: label)
    back = app.topic(f"{NAME}.{label}.back", value_type=kind, key=lambda value: label)

    @app.agent(there, name=label)
    async def agent(stream):
        async for key, value in stream.items():
            assert type(value) is kind, value
            assert key == label
            await back.send(value=value)

    @app.process(back, to=seen, name=label)
    async def service(ctx: Context, value: kind) -> None:
        assert type(value) is kind, value
        ctx.emit({"label": ctx.key, "type": type(value).__name__})


for kind in (Struct, Data, Model, Record, dict, int, str):
    pass_through(kind.__name__, kind)

free = app.topic(f"{NAME}.free")
freed = app.topic(f"{NAME}.freed")


@app.agent(free)
async def untyped(stream):
    # A topic without a type is what it is in Faust: a record names its class itself.
    async for value in stream:
        await freed.send(key="k", value=Record(n=value["n"]))


@app.agent(freed)
async def records(stream):
    async for value in stream:
        assert type(value) is Record, value
        await seen.send(key="free", value={"label": "free", "type": "Record"})
"""


def test_agents_and_services_share_topics_of_every_type(make: Make) -> None:
    shop = make(TYPES, "partitions=1")
    shop.work()
    values: dict[str, Any] = {label: {"n": 5} for label in ("Struct", "Data", "Model", "Record", "dict", "free")}
    values |= {"int": 5, "str": "five"}

    for label, value in values.items():
        shop.send_to(label, value)

    found = {value["label"]: value["type"] for value in shop.first("seen", len(values))}
    assert found == {**{label: label for label in values}, "free": "Record"}


ASKED = """
class Question(msgspec.Struct):
    n: int


questions = app.topic(f"{NAME}.questions", value_type=Question, key="n")
answers = app.topic(f"{NAME}.answers", value_type=int)


@app.agent(questions)
async def doubles(stream):
    async for question in stream:
        yield question.n * 2


@app.agent()
async def trebles(stream):
    async for n in stream:
        yield n * 3


@app.agent(sink=[answers])
async def plain(stream):
    async for n in stream:
        yield n


@app.task
async def ask():
    await answers.send(key="k", value=await doubles.ask(Question(21)))
    await answers.send(key="k", value=await trebles.ask(21))
    await plain.cast(7)
"""


async def test_agents_receive_asks_and_casts(make: Make) -> None:
    shop = make(ASKED, "partitions=2, faust={'reply_create_topic': True}")
    worker = shop.work()

    assert sorted(shop.first("answers", 3)) == [7, 42, 63]

    assert worker.stop() == 0, worker.output
    partitions = {name: count for name, count in (await shop.topics()).items() if "__" not in name}
    assert set(partitions.values()) == {1, 2}
    assert [name for name, count in partitions.items() if count == 1] == [f"{shop.id}.control"]


LONELY = """
beats = app.topic(f"{NAME}.beats", value_type=str, key=lambda beat: "all")
counts = app.topic(f"{NAME}.counts", value_type=int)


@app.process(beats, to=counts)
async def counter(ctx: Context, beat: str, count: ValueState[int | None]) -> None:
    count.value = (count.value or 0) + 1
    ctx.emit(count.value)


@app.timer(interval=0.1)
async def beat():
    await beats.send(value="tick")
"""


@pytest.mark.parametrize("program", ["tidegate", "faust"])
async def test_without_agents_and_tables_fausts_clients_never_start(make: Make, program: str) -> None:
    shop = make(LONELY)
    worker = shop.work(program)
    assert shop.first("counts", 3) == [1, 2, 3]

    assert worker.stop() == 0, worker.output
    admin = AIOKafkaAdminClient(bootstrap_servers=shop.address)
    await admin.start()
    groups = {group for group, *_ in await admin.list_consumer_groups()}
    await admin.close()
    assert f"{shop.id}:workers" in groups
    assert shop.id not in groups
    assert not [name for name in await shop.topics() if "__assignor" in name]
    assert "Faust beside it" not in worker.output


def test_the_banner_shows_the_broker_that_is_used_and_no_web_server_that_is_not(make: Make) -> None:
    shop = make(LONELY)
    worker = shop.work("faust")
    worker.wait_for("recovered")

    assert shop.address in worker.stdout
    assert "9092" not in worker.stdout
    assert "6066" not in worker.stdout


def test_the_embedded_log_refuses_agents_with_advice(make: Make) -> None:
    shop = make(PIPELINE)
    refused = shop.run("worker", "shop.py", "--broker", "embedded://", code=1).stderr
    assert "(shop.enrich, shop.alarm, totals) need a Kafka broker" in refused
    assert "--broker kafka://" in refused


LEADER = """
@app.timer(interval=0.2, on_leader=True)
async def lead():
    print("I lead", flush=True)
"""


def test_one_worker_leads(make: Make) -> None:
    shop = make(LEADER)
    first = shop.work()
    first.wait_for("I lead")
    second = shop.work()
    second.wait_for("recovered")
    assert first.stop() == 0

    second.wait_for("I lead")

    assert second.stop() == 0


def test_the_only_worker_of_an_embedded_log_leads(make: Make) -> None:
    shop = make(LEADER)
    worker = shop.work(TIDEGATE_BROKER="embedded://")
    worker.wait_for("I lead")
    assert worker.stop() == 0


def test_pages_are_served_if_the_app_enables_the_web_server(make: Make) -> None:
    port = free_port()
    page = """
@app.faust.page("/total/")
async def total(web, request):
    return web.json({"total": table["k0"]})
"""
    shop = make(PIPELINE + page, f"faust={{'web_enabled': True, 'web_port': {port}, 'web_bind': '127.0.0.1'}}")
    worker = shop.work()
    shop.send_to("raw", {"who": "k0", "id": 1})
    shop.first("totals", 1)

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/total/") as answer:
        assert json.load(answer) == {"total": 1}

    assert worker.stop() == 0, worker.output


def test_agents_authenticate_like_services_over_tls(tmp_path: Path, secure: Secure) -> None:  # noqa: F811  the fixture
    login = secure.settings(
        kafka_tls="on", kafka_sasl_mechanism="SCRAM-SHA-512", kafka_sasl_username=USER, kafka_sasl_password=PASSWORD
    )
    asked = ("kafka_tls", "kafka_sasl")
    given = {variable(name): str(it) for name, it in dataclasses.asdict(login).items() if name.startswith(asked)}
    shop = Shop(tmp_path, secure.broker.url_of("BOTH"), PIPELINE, **given)
    try:
        worker = shop.work()
        shop.send_to("raw", {"who": "k0", "id": 1})
        assert shop.first("totals", 1) == [{"who": "k0", "count": 1, "total": 1}]
        assert worker.stop() == 0, worker.output
    finally:
        shop.close()


# -- from Faust --------------------------------------------------------------------------------------------------------

FAUST_APP = 'faust.App("shop", broker="kafka://127.0.0.1:9092", topic_partitions=4)'
FAUST_TOPIC = 'app.topic("{0}", key_type=str, value_type={1})'
OUR_TOPIC = 'app.topic("{0}", value_type={1}, key="customer")'


def test_an_app_migrated_from_faust_resumes_at_its_position(tmp_path: Path, kafka: SharedKafka) -> None:
    """As docs/from-faust.md says: another app and other topics, the same agents."""
    before = (Path(__file__).parent / "faust_shop.py").read_text()
    shop = Shop(tmp_path, kafka.url, "")

    def write(text: str) -> None:
        for name in ("orders", "spenders"):
            text = text.replace(f'"{name}"', f'"{shop.id}.{name}"')
        (tmp_path / "shop.py").write_text(text)

    async def order(customer: str, cents: int) -> None:
        value = json.dumps({"customer": customer, "cents": cents}).encode()
        async with AIOKafkaProducer(bootstrap_servers=shop.address) as producer:
            await producer.send_and_wait(f"{shop.id}.orders", value, key=customer.encode())

    async def create_topics() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=shop.address)
        await admin.start()
        await admin.create_topics([NewTopic(f"{shop.id}.{name}", 4, 1) for name in ("orders", "spenders")])
        await admin.close()

    try:
        asyncio.run(create_topics())
        assert FAUST_APP in before
        write(before.replace(FAUST_APP, f'faust.App("{shop.id}", broker="{kafka.url}", topic_partitions=4)'))
        worker = shop.start("-A", "shop", "worker", "-l", "info", "--without-web", program="faust")
        worker.wait_for("Ready")
        asyncio.run(order("bob", 6_000))
        asyncio.run(order("ann", 12_000))
        worker.wait_for("ann has spent 12000 cents")
        asyncio.run(order("carl", 10_000))  # handled after bob's, whose partition it may share
        worker.wait_for("carl has spent 10000 cents")
        assert worker.stop() == 0, worker.output

        after = before.replace("import faust\n", "import faust\nfrom tidegate import App\n")
        after = after.replace(FAUST_APP, f'App("{shop.id}")').replace("app.Table(", "app.faust.Table(")
        for name, kind in (("orders", "Order"), ("spenders", "Spender")):
            assert FAUST_TOPIC.format(name, kind) in after
            after = after.replace(FAUST_TOPIC.format(name, kind), OUR_TOPIC.format(name, kind))
        write(after)
        worker = shop.work()
        shop.send_to("orders", {"customer": "bob", "cents": 5_000}, {"customer": "ann", "cents": 1})
        worker.wait_for("bob has spent 11000 cents")
        assert worker.stop() == 0, worker.output
        assert [(one["customer"], one["cents"]) for one in shop.all("spenders") if one["customer"] != "carl"] in (
            [("ann", 12_000), ("bob", 11_000)],
            [("bob", 11_000), ("ann", 12_000)],  # in the order of their partitions
        )
    finally:
        shop.close()


# -- sending -----------------------------------------------------------------------------------------------------------

OUTSIDE = """
notes = app.topic(f"{NAME}.notes", value_type=str, key=lambda note: note, partitions=3)


@app.command()
async def feed():
    fausts = app.faust.topic(notes)
    await fausts.declare()
    position = await notes.send("from a command")
    assert position == 1, position
    await (await fausts.send(key="k", value="to a partition", partition=2))
    await (await app.faust.send(f"{NAME}.notes", "k", "by name"))
"""


def test_commands_send_through_faust_without_a_worker(make: Make) -> None:
    shop = make(OUTSIDE)
    # As a process of its own: the program looks for the app's commands when it is imported.
    command = [sys.executable, "-m", "faust", "-A", "shop", "feed"]
    environment = {**os.environ, "TIDEGATE_BROKER": f"kafka://{shop.address}"}
    done = subprocess.run(command, cwd=shop.directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    found = shop.json("tail", "shop.py", f"{shop.id}.notes", "--until-end")
    assert {line["value"]: line["key"] for line in found} == {
        "from a command": "from a command",
        "to a partition": "k",
        "by name": "k",
    }
    assert [line["partition"] for line in found if line["value"] == "to a partition"] == [2]


# -- transactions ------------------------------------------------------------------------------------------------------

HEARD = """
alerts = app.topic(f"{NAME}.alerts", value_type=str)
heard = app.topic(f"{NAME}.heard", value_type=str, key=lambda text: text)


@app.agent(alerts)
async def alarm(stream):
    async for alert in stream:
        assert await heard.send(alert) is None  # buffered by Faust
"""


async def test_agents_see_committed_records_only_and_commit_past_aborted_ones(make: Make) -> None:
    shop = make(HEARD, "partitions=1")
    worker = shop.work()
    worker.wait_for("recovered")
    topic = f"{shop.id}.alerts"
    async with AIOKafkaProducer(bootstrap_servers=shop.address, transactional_id=shop.id) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b'"first"', key=b"k")
        deadline = time.monotonic() + 60
        while (await shop.committed(shop.id, topic, 1))[0] != 1:
            assert time.monotonic() < deadline, worker.output
        for _ in range(2):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b'"ghost"', key=b"k")
            await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b'"last"', key=b"k")  # offset 6

    assert shop.first("heard", 2) == ["first", "last"]

    assert worker.stop() == 0, worker.output
    assert shop.all("heard") == ["first", "last"]
    assert await shop.committed(shop.id, topic, 1) == {0: 7}


# -- ends --------------------------------------------------------------------------------------------------------------

FAILS = """
from pathlib import Path

beats = app.topic(f"{NAME}.beats", value_type=str, key=lambda beat: "all")
done = app.topic(f"{NAME}.done", value_type=str)


@app.agent(beats)
async def drummer(stream):
    async for beat in stream:
        if beat == "bad" and not Path("mended").exists():
            raise ValueError("out of rhythm")
        await done.send(key="k", value=beat)
"""


@pytest.mark.parametrize("program", ["tidegate", "faust"])
def test_a_failed_agent_stops_the_worker_and_handles_the_event_again(make: Make, program: str) -> None:
    shop = make(FAILS, "partitions=1")
    worker = shop.work(program)
    shop.send_to("beats", "one", "bad", "two")

    assert worker.wait() == 1
    assert "ValueError" in worker.output
    assert "out of rhythm" in worker.output
    assert "shop.py" in worker.output

    (shop.directory / "mended").touch()
    worker = shop.work(program)
    shop.send_to("beats", "three")
    found = shop.first("done", 4)
    while "three" not in found:  # the first one may come twice
        found = shop.first("done", len(found) + 1)
    assert found[-3:] == ["bad", "two", "three"]
    assert worker.stop() == 0, worker.output


def test_fausts_supervisor_restarts_the_agent_and_the_failure_is_shown(make: Make) -> None:
    shop = make(FAILS, 'partitions=1, faust={"agent_supervisor": "mode.OneForOneSupervisor"}')
    worker = shop.work()
    shop.send_to("beats", "one", "bad", "two")

    assert shop.first("done", 2) == ["one", "two"]

    assert "agent shop.drummer failed" in worker.output
    assert "out of rhythm" in worker.output
    assert worker.stop() == 0, worker.output


BUSY = """
import asyncio
from pathlib import Path

beats = app.topic(f"{NAME}.beats", value_type=str, key=lambda beat: "all")
done = app.topic(f"{NAME}.done", value_type=str)


@app.agent(beats)
async def drummer(stream):
    async for beat in stream:
        print("begun", flush=True)
        if not Path("quick").exists():
            await asyncio.sleep(600)
        await done.send(key="k", value=beat)
"""


def test_a_stopping_worker_waits_for_busy_agents_as_long_as_for_handlers(make: Make) -> None:
    shop = make(BUSY, "partitions=1, drain_seconds=1.0")
    worker = shop.work()
    shop.send_to("beats", "one")
    worker.wait_for("begun")

    began = time.monotonic()
    assert worker.stop(signal.SIGTERM) == 0, worker.output
    assert time.monotonic() - began < 15

    (shop.directory / "quick").touch()
    worker = shop.work()
    assert shop.first("done", 1) == ["one"]
    assert worker.stop() == 0, worker.output


# -- kills and rebalances ----------------------------------------------------------------------------------------------


def check_results(shop: Shop, sent: int) -> None:
    """Our side: each like counted once, in order. Faust's side: every event at least once."""
    likes, alerts, totals = shop.all("likes"), shop.all("alerts"), shop.all("totals")
    assert {like["id"] for like in likes} == set(range(sent))
    received = Counter(like["who"] for like in likes)
    for who, count in received.items():
        assert [alert["count"] for alert in alerts if alert["who"] == who] == list(range(1, count + 1))
    assert {(value["who"], value["count"]) for value in totals} == {(alert["who"], alert["count"]) for alert in alerts}


def settle(shop: Shop, sent: int) -> None:
    """Until every event has gone all the way."""
    deadline = time.monotonic() + 100
    while True:
        likes, totals = shop.all("likes"), shop.all("totals")
        reached = {(value["who"], value["count"]) for value in totals}
        if {like["id"] for like in likes} == set(range(sent)) and len(reached) == len(likes):
            return
        assert time.monotonic() < deadline, (sent, len(likes), len(reached))


def test_after_kill_9_services_are_exact_and_agents_lose_nothing(make: Make) -> None:
    shop = make(PIPELINE)
    shop.send_to("raw", *events(2000))
    for already in (50, 500):
        worker = shop.work()
        shop.first("totals", already)
        worker.kill()
        assert worker.wait() == -signal.SIGKILL
    assert len(shop.all("totals")) < 2000, "the kills came too late"

    worker = shop.work()
    settle(shop, 2000)
    assert worker.stop() == 0, worker.output

    check_results(shop, 2000)


def test_workers_join_and_leave(make: Make) -> None:
    shop = make(PIPELINE)
    first = shop.work()
    shop.send_to("raw", *events(300, keys=12))
    shop.first("totals", 50)
    second = shop.work()
    shop.send_to("raw", *events(300, keys=12, start=300))
    second.wait_for("assigned: counter")
    settle(shop, 600)

    assert first.stop() == 0, first.output
    shop.send_to("raw", *events(300, keys=12, start=600))
    settle(shop, 900)
    assert second.stop() == 0, second.output

    check_results(shop, 900)

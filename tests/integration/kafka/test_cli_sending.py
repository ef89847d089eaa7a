"""What an app sends from outside of its services, on a broker; and the positions that Kafka's own tools read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.integration.commands import lines
from tests.integration.kafka.projects import KafkaProject
from tidegate_app.kafka.plugin import SharedKafka

SENDER = """
import asyncio

from tidegate import App, Context, ValueState
from tidegate.errors import RecordTooLargeError

app = App("{app}", kafka_max_request_bytes=50_000)
words = app.topic("{app}-words", value_type=str, key=lambda word: word[:3])

@app.process(words)
async def keep(ctx: Context, word: str, kept: ValueState[list | None]) -> None:
    kept.value = [*(kept.value or []), word]

@app.task
async def send() -> None:
    await asyncio.gather(*(words.send(value=f"{{n % 5:03}}-{{n}}") for n in range(500)))
    await words.send_many(f"{{n % 5:03}}-many-{{n}}" for n in range(200))
    try:
        await words.send_many(["000-bad", "0" * 60_000])
    except RecordTooLargeError as error:
        print("refused:", error, flush=True)
    await words.send_many(["000-after"])
    print("sent", flush=True)
"""


TABLE = """
import msgspec

from tidegate import App, Context

app = App("{app}", partitions=1)

class Customer(msgspec.Struct, frozen=True):
    id: str

customers = app.topic("{app}-customers", value_type=Customer, key="id", compact=True)
live = app.topic("{app}-live", value_type=Customer, compact=True)

@app.process(customers, to=live)
def follow(ctx: Context, customer: Customer | None) -> None:
    ctx.emit(customer)

@app.task
async def send() -> None:
    await customers.send(Customer("ann"))
    await customers.send(None, key="ann")
    print("sent", flush=True)
"""


@pytest.fixture
def project(tmp_path: Path, kafka: SharedKafka) -> Iterator[KafkaProject]:
    made = KafkaProject(tmp_path, kafka.url)
    yield made
    made.close()


def test_single_values_keep_their_order_and_batches_are_atomic(project: KafkaProject) -> None:
    app = project.app
    (project.directory / "sender.py").write_text(SENDER.format(app=app))
    with project.worker("sender.py") as worker:
        worker.wait_for("sent")
        assert "refused: " in worker.stdout
        project.json("tail", "sender.py", f"{app}-words", "--from-beginning", "--count", "701")
    found = project.json("tail", "sender.py", f"{app}-words", "--until-end")
    values = [line["value"] for line in found]
    assert len(values) == 701
    assert set(Counter(values).values()) == {1}
    assert "000-bad" not in values
    for key in (f"{number:03}" for number in range(5)):
        single = [int(value[4:]) for value in values if value.startswith(key) and value[4:].isdecimal()]
        assert single == sorted(single)
        assert len(single) == 100
        many = [value for value in values if value.startswith(f"{key}-many-")]
        assert [int(value.rpartition("-")[2]) for value in many] == [n for n in range(200) if f"{n % 5:03}" == key]


async def test_the_positions_of_each_service_are_visible_to_lag_monitors(
    project: KafkaProject, kafka: SharedKafka
) -> None:
    project.greet(f"n{number}" for number in range(100))
    project.run("send", "hello.py", project.topic("notes"), stdin=lines({"who": number} for number in range(20)))
    project.run("worker", "hello.py", "--until-end")

    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.address)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.address)
    await admin.start()
    await consumer.start()
    try:
        between = f"pad.{project.topic('notes')}.by-key"
        inputs = {
            "greeter": project.topic("greetings"),
            between: project.topic("notes"),
            "pad": f"{project.app}.{between}",
        }
        for service, topic in inputs.items():
            published = await admin.list_consumer_group_offsets(f"{project.app}.{service}")
            ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(4)])
            assert {source: known.offset for source, known in published.items()} == ends

        project.run("reset", "hello.py", "--yes")
        assert await admin.list_consumer_group_offsets(f"{project.app}.greeter") == {}
    finally:
        await consumer.stop()
        await admin.close()


async def test_a_tombstone_is_a_null_value_to_every_client(project: KafkaProject, kafka: SharedKafka) -> None:
    app = project.app
    (project.directory / "table.py").write_text(TABLE.format(app=app))
    with project.worker("table.py") as worker:
        worker.wait_for("sent")
        project.json("tail", "table.py", f"{app}-live", "--from-beginning", "--count", "2")
    for topic in (f"{app}-customers", f"{app}-live"):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.url.removeprefix("kafka://"), isolation_level="read_committed"
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            found = [await consumer.getone() for _ in range(2)]
        finally:
            await consumer.stop()
        assert [(record.key, record.value) for record in found] == [(b"ann", b'{"id":"ann"}'), (b"ann", None)]

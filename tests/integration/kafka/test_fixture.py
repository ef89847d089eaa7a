"""The broker that tests share."""

from __future__ import annotations

import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tidegate_app.kafka.plugin import SharedKafka


async def test_the_broker_accepts_and_returns_records(kafka: SharedKafka) -> None:
    topic = f"fixture-{uuid.uuid4().hex}"
    producer = AIOKafkaProducer(bootstrap_servers=kafka.address, transactional_id=topic)
    async with producer, producer.transaction():
        await producer.send_and_wait(topic, b"one", partition=0)

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.address,
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        record = await consumer.getone()

    assert record.value == b"one"

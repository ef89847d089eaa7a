from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tidegate.logs.kafka import KafkaLog
from tidegate.settings import KafkaSettings
from tidegate_app.kafka.plugin import SharedKafka


@pytest.fixture
async def log(kafka: SharedKafka) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(kafka.url, KafkaSettings())
    await log.start()
    yield log
    await log.stop()

"""The log on Kafka: any broker from 2.5 on. Nothing else in Tidegate knows of aiokafka.

Of aiokafka this uses the client (connections, metadata, authentication), the protocol and the record batches. Fetching
and transactions are our own: aiokafka's consumer makes a Python object of eleven fields for each record and forgets
what it has fetched at every change of its assignment; its producers have connections and tasks of their own, one set
for each transactional id, of which a worker has as many as tasks.
"""

from __future__ import annotations

from tidegate.logs.kafka.log import KafkaLog

__all__ = ("KafkaLog",)

"""The log on Kafka, for brokers from 2.5 on. No other package imports aiokafka.

It uses aiokafka's client (connections, metadata, authentication), protocol and record batches. Fetching and
transactions are implemented here: aiokafka's consumer creates a Python object of eleven fields per record and drops
fetched records at every change of its assignment; its producer has connections and tasks of its own, one set for each
transactional id, of which a worker has one per task.
"""

from __future__ import annotations

from tidegate.logs.kafka.log import KafkaLog

__all__ = ("KafkaLog",)

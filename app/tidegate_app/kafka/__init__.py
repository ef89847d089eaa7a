"""A Kafka broker on this machine, for development and tests: jars, Java, and the process."""

from __future__ import annotations

from tidegate_app.kafka.broker import Broker

__all__ = ("Broker",)

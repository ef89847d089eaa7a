"""Java and pinned jars for the Java programs that Tidegate starts: Kafka brokers and Spark."""

from __future__ import annotations

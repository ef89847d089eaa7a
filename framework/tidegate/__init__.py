"""Tidegate: keyed, durable, exactly-once services as async functions on a partitioned log."""

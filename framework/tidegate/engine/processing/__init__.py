"""Processes records and timers: dispatch, operators, the context, the order per key, actor messages, errors."""

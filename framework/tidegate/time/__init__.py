"""Clocks, where a record's time comes from, watermarks, and how a task combines them."""

"""Clocks, time sources of records, watermark strategies, and the combined watermark of a task."""

"""Measurements of a running process: throughput, latency, memory, and who holds the event loop."""

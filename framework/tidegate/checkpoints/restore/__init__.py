"""Restore: start a new run from a savepoint, at any parallelism."""

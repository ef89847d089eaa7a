"""A new run that starts from a savepoint, at any parallelism."""

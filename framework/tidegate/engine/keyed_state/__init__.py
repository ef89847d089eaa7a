"""The state of a task: its store, prefetch, time to live, schema migration."""

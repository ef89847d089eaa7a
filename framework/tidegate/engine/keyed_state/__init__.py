"""The state of a task: its store, timers, time to live, schema migration."""

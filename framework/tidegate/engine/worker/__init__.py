"""The worker around the tasks: the work loop, assignment of tasks, reading, the control topic, monitoring."""

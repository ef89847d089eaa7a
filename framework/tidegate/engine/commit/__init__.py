"""The commit of a task, its recovery, and the epochs on which checkpoints align."""

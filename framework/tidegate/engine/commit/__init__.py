"""The commit of a task, its recovery, and the epochs that checkpoints align on."""

"""What a commit writes, how a task recovers from it, and the epochs that checkpoints align on."""

"""Checkpoints and savepoints: their format, where they are kept, how they are taken and read."""

"""The snapshot of one task, and the in-flight records at its cut."""

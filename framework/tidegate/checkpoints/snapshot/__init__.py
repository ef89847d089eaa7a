"""The snapshot of one task, and the records in flight at its cut."""

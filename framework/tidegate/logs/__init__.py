"""The partitioned log: one contract (`base`), and its implementations."""

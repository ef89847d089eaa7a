"""The partitioned log: one interface (`base`), and the logs behind it."""

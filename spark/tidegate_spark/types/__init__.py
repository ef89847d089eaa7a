"""Event and state types as Spark types, and their bytes as typed columns."""

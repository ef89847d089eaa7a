"""One app in one process: its engine, its producer, its metrics."""

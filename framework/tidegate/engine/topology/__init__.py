"""The dataflow graph of an app: services, their shuffles, tasks and internal topics, per run."""

"""What all tasks of a worker share: the log, state directories, metrics, turns of the event loop, commit listeners."""

"""State, actors, topics and operations of a running app over HTTP, and its dashboard."""

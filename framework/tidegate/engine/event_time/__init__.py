"""The event time of a task: watermarks in, watermarks out."""

"""The composition root: settings, the command line, the worker process."""

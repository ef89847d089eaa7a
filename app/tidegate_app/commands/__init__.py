"""One module for each command, with a `command`."""

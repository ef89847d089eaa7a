"""One module per command: its options and help text, in a click command called `command`."""

"""How other processes on this machine talk to the one that owns an embedded log: a Unix socket beside the log."""

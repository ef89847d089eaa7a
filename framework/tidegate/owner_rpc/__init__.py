"""RPC of other processes on this machine to the owner of an embedded log, over a Unix socket in the log's directory."""

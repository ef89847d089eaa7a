"""The worker around the tasks: which tasks run here, who reads for them, what the control topic says."""

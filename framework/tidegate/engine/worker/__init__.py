"""The worker around the tasks: which run here, who reads for them, what the control topic says."""

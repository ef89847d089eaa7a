"""What is measured: the events of each workload, the outputs that are right, and how a rate is read from them."""

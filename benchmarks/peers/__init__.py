"""The peers: their setup, their commands, and the programs that implement the workloads with them."""

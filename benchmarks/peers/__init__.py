"""The others: what each needs, how it is started, and the programs that do the workloads with it."""

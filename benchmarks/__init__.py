"""Benchmark programs, which print ratios measured within one run. `make bench` runs them all."""

"""Bare loops that do a workload without any framework: the lower bound to compare with."""

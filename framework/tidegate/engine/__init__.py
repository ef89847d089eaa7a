"""Runs services: a task per service and partition, that reads, handles, commits and recovers."""

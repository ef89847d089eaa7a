"""Queries of committed state: views of task stores, pages in key order, values as JSON."""

"""Reading committed state: views of tasks' stores, pages in the order of keys, values as JSON."""

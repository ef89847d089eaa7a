"""The peers in Python. Each runs in an environment of its own and imports nothing of this project."""

"""Hours of bad luck: `make soak MINUTES=30`."""

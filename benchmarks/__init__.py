"""Programs that measure, and print ratios taken in the same run. `make bench` runs them all."""

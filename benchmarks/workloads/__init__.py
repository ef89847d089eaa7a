"""The workloads: their events, the expected outputs, and how a rate is computed from them."""

"""Measured results as tables, ratios and charts, and their publication in README and docs."""

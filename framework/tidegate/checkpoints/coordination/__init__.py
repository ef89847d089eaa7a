"""The leader: barriers, reports, timeouts, and what is deleted afterwards."""
